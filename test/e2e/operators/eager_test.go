package operators

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestEagerWithoutDefinition: a replica that starts before the definition of an eager resource waits for a minute, and
// says so; then it serves everybody else, also whoever brings the definition, and the resource comes from memory.
func TestEagerWithoutDefinition(t *testing.T) {
	t.Parallel()
	gadgets := kinds.Kind{APIVersion: "example.com/v1", Name: "Gadget", Plural: "gadgets"}
	p, err := harness.LaunchProxy(t.Context(), harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{
		"--eager", "pods," + gadgets.Eager(),
	}})
	expect.NoError(t, err)
	t.Cleanup(func() { expect.NoError(t, p.Stop()) })
	isLive := func(reason string, value float64) {
		t.Helper()
		labels := map[string]string{"resource": "gadgets.example.com", "reason": reason}
		got, series, err := p.Metric(t.Context(), "listproxy_collection_live", labels)
		if err != nil || series != 1 || got != value {
			t.Errorf("listproxy_collection_live%v is %v in %d series (%v), want %v", labels, got, series, err, value)
		}
	}

	poll.Until(t, patience, "only the gadgets keep it from being ready", func() bool {
		ready, text := p.Ready(t.Context())
		return !ready && strings.Contains(text, "[+]collection/pods.v1 ok\n") &&
			strings.Contains(text, "[-]collection/gadgets.v1.example.com not ready: unknown-resource\n")
	})
	isLive("unknown-resource", 0)
	warning := regexp.MustCompile(`level=WARN msg="kube-apiserver refuses an eager resource.*" resource=gadgets.v1.example.com reason=unknown-resource do=".*install its definition`)
	if line := warning.FindString(p.Log()); line != "" {
		t.Errorf("it warns at once: %s", line)
	}
	expect.NoError(t, poll.Retry(t.Context(), "ready without the gadgets", func() error {
		ready, text := p.Ready(t.Context())
		if !ready || !strings.Contains(text, "[+]collection/gadgets.v1.example.com ok: unknown-resource\n") {
			return fmt.Errorf("ready %t: %s", ready, text)
		}
		return nil
	}))
	isLive("unknown-resource", 0)
	if !warning.MatchString(p.Log()) {
		t.Errorf("no line says what to do about the gadgets: %s", p.Told())
	}

	via := ask.MustNew(t, p.RESTConfig(cp.RESTConfig(controlplane.Admin)), patience)
	_, err = via.Do(t.Context(), http.MethodPost, kinds.Definitions, gadgets.Definition())
	expect.NoError(t, err)
	begun := time.Now()
	served(t, via, gadgets.Path(""))
	_, err = via.Do(t.Context(), http.MethodPost, gadgets.Path(controlplane.TeamA), gadgets.Object("one"))
	expect.NoError(t, err)
	poll.Until(t, patience, "gadgets from memory", func() bool {
		a, err := via.Get(t.Context(), gadgets.Path("")+"?"+ask.AnyVersion)
		expect.NoError(t, err)
		return a.FromMemory() && strings.Contains(string(a.Body), `"name":"one"`)
	})
	harness.Log(fmt.Sprintf("operators: an eager resource came from memory %v after its definition", time.Since(begun).Round(time.Second/10)))
	isLive("none", 1)
}
