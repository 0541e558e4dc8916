"""Catch up every 15 minutes, in a pod. Guide: docs/deploy/airflow.md"""

from datetime import UTC, datetime, timedelta

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import dag
from kubernetes.client import models as k8s


@dag(
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
)
def deltarelay_kubernetes():
    KubernetesPodOperator(
        task_id="catch_up",
        namespace="deltarelay",
        service_account_name="deltarelay",
        image="registry.example/deltarelay:0.1",
        arguments=["run"],
        retries=3,
        retry_delay=timedelta(minutes=1),
        termination_grace_period=60,
        volumes=[
            k8s.V1Volume(name="configuration", config_map=k8s.V1ConfigMapVolumeSource(name="deltarelay")),
            k8s.V1Volume(name="secret", secret=k8s.V1SecretVolumeSource(secret_name="deltarelay")),
            k8s.V1Volume(name="tmp", empty_dir=k8s.V1EmptyDirVolumeSource(size_limit="4Gi")),
        ],
        volume_mounts=[
            k8s.V1VolumeMount(name="configuration", mount_path="/etc/deltarelay", read_only=True),
            k8s.V1VolumeMount(name="secret", mount_path="/run/secrets/deltarelay", read_only=True),
            k8s.V1VolumeMount(name="tmp", mount_path="/tmp"),
        ],
        security_context={"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001},
        container_security_context={
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        container_resources=k8s.V1ResourceRequirements(
            requests={"cpu": "1", "memory": "4Gi"}, limits={"memory": "4Gi"}
        ),
    )


deltarelay_kubernetes()
