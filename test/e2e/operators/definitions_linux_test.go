package operators

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/process"
)

// TestManyDefinitions: however large definitions are, they take next to no memory.
func TestManyDefinitions(t *testing.T) {
	harness.Long(t)
	const many, properties, most = 25, 1200, 12 << 20 // 190 kB each
	binary, err := harness.BuildPlainProxy()
	expect.NoError(t, err)
	peak := func() int64 {
		p, err := harness.StartProxy(t.Context(), harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed), Binary: binary})
		expect.NoError(t, err)
		_, peak, err := process.Memory(p.PID())
		expect.NoError(t, err)
		expect.NoError(t, p.Stop())
		return peak
	}
	before := peak()
	fields := kinds.Fields{}
	for n := range properties {
		fields[fmt.Sprintf("field%d", n)] = kinds.Fields{"type": "string", "description": strings.Repeat("what it says ", 8)}
	}
	version := kinds.Fields{"name": "v1", "served": true, "storage": true, "schema": kinds.Fields{
		"openAPIV3Schema": kinds.Fields{"type": "object", "properties": kinds.Fields{"spec": kinds.Fields{"type": "object", "properties": fields}}},
	}}
	for n := range many {
		k := kinds.Kind{APIVersion: "large.test/v1", Name: fmt.Sprintf("Large%d", n), Plural: fmt.Sprintf("large%d", n)}
		expect.NoError(t, direct.Ensure(t.Context(), kinds.Definitions, k.Definition(version)))
		defer func() {
			_, err := direct.Do(t.Context(), http.MethodDelete, kinds.Definitions+"/"+k.Plural+".large.test", nil)
			expect.NoError(t, err)
		}()
	}
	after := peak()
	harness.Log(fmt.Sprintf("operators: %d definitions: at most %d MiB resident, %d without them", many, after>>20, before>>20))
	if after-before > most {
		t.Errorf("%d large definitions take %d MiB", many, (after-before)>>20)
	}
}
