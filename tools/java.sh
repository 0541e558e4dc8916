#!/bin/sh
# Says nothing when the Java that Spark will use is there and right. Else the first line says what is wrong, the rest how
# to get it right, and the status is 1. Spark uses JAVA_HOME, else the first java on PATH; infra/spark/java.py judges the same.
if [ -n "${JAVA_HOME:-}" ]; then
  java="$JAVA_HOME/bin/java" origin="JAVA_HOME ($JAVA_HOME)"
else
  java=$(command -v java || true) origin="the java on PATH"
fi

release() {
  "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

found=""
[ -n "$java" ] && [ -x "$java" ] && found=$(release "$java")
case "$found" in
  17 | 21) exit 0 ;;
  "") if [ -n "${JAVA_HOME:-}" ]; then
        echo "Java 17 or 21 is needed: JAVA_HOME is $JAVA_HOME, and there is no working bin/java in it."
      else
        echo "Java 17 or 21 is needed: there is no Java on this machine's PATH."
      fi ;;
  *) echo "Java 17 or 21 is needed: $origin is Java $found." ;;
esac

for home in /usr/lib/jvm/* /opt/homebrew/opt/openjdk@17 /opt/homebrew/opt/openjdk@21 /usr/local/opt/openjdk@17; do
  [ -x "$home/bin/java" ] || continue
  case "$(release "$home/bin/java")" in
    17 | 21) echo "  It is here already:  export JAVA_HOME=$home"; exit 1 ;;
  esac
done
echo "  Debian, Ubuntu:  sudo apt install openjdk-17-jre-headless"
echo "  macOS:           brew install openjdk@17 && export JAVA_HOME=\"\$(brew --prefix openjdk@17)\""
echo "  Fedora:          sudo dnf install java-21-openjdk-headless"
exit 1
