#!/bin/sh
# Fetches the chart library of the report page and records what it is:
#   scripts/charts.sh [VERSION]
# The file is the official build, unmodified. A test holds it to its hash.
set -eu
version=${1:-6.1.0}
into=$(cd "$(dirname "$0")/.." && pwd)/results/page/assets
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

want=$(npm view "echarts@$version" dist.integrity)
npm pack --silent "echarts@$version" >/dev/null
got=sha512-$(openssl dgst -sha512 -binary "echarts-$version.tgz" | base64 -w0)
if [ "$want" != "$got" ]; then
	echo "echarts $version: the package's hash is $got, want $want" >&2
	exit 1
fi
tar xzf "echarts-$version.tgz"
cp package/dist/echarts.min.js "$into/echarts.min.js"
cp package/LICENSE "$into/echarts.LICENSE"
cp package/NOTICE "$into/echarts.NOTICE"
cp package/licenses/LICENSE-d3 "$into/echarts.LICENSE-d3"
cat >"$into/VERSION" <<END
echarts $version
package $got
echarts.min.js sha256-$(openssl dgst -sha256 -binary package/dist/echarts.min.js | base64 -w0)
END
echo "echarts $version in $into; update NOTICE if the version changed"
