package operators

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/telemetry/statusz"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestMismatchIsOnThePage: an object is falsified on its way to listproxy, a self-check finds it,
// and the page, its JSON and listproxy status say so, also when all is well again.
func TestMismatchIsOnThePage(t *testing.T) {
	t.Parallel()
	h := hop.Run(t, cp.URL(), cp.CA())
	var next atomic.Pointer[string] // the object to falsify, once
	var loaded sync.Map             // watches of which the first state has passed: what is false in that is found by no self-check
	h.OnLine(func(r *http.Request, line []byte) ([]byte, error) {
		if _, after := loaded.Load(r); !after && r.URL.Query().Get("sendInitialEvents") != "" {
			if bytes.Contains(line, []byte(metav1.InitialEventsAnnotationKey)) {
				loaded.Store(r, nil)
			}
			return line, nil
		}
		name := next.Load()
		if name == nil || !bytes.Contains(line, []byte(`"name":"`+*name+`"`)) || !bytes.Contains(line, []byte(`"said":"truth"`)) ||
			!next.CompareAndSwap(name, nil) {
			return line, nil
		}
		return bytes.Replace(line, []byte(`"said":"truth"`), []byte(`"said":"Truth"`), 1), nil
	})
	p := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: h.RESTConfig(cp.RESTConfig(controlplane.Feed)), Args: []string{"--eager", "configmaps", "--self-check-interval", "1s"},
	})
	collection := func(s statusz.Status) statusz.Collection {
		for _, c := range s.Collections {
			if c.Name() == "configmaps/json" {
				return c
			}
		}
		return statusz.Collection{}
	}
	poll.Until(t, patience, "a check agrees", func() bool {
		s := status(t, p)
		c := collection(s)
		return c.State == statusz.StateLive && c.SelfCheck.Result == "agrees" && c.SelfCheck.Age != nil && c.SelfCheck.Mismatches == 0
	})

	objects, restarts, created := 0, int64(0), time.Time{}
	falsify := func() {
		objects++
		name := fmt.Sprintf("falsified-%d", objects)
		next.Store(&name)
		restarts, created = collection(status(t, p)).Restarts, time.Now()
		object := kinds.Kind{APIVersion: "v1", Name: "ConfigMap", Rest: `{"data":{"said":"truth"}}`}.Object(name)
		if _, err := direct.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/default/configmaps", object); err != nil {
			t.Fatal(err)
		}
	}
	falsify()
	// It is looked at again after twenty seconds, before it counts. Where the watch breaks
	// meanwhile, what is wrong goes as what contradicts the resume point, and no check has found it: then
	// another object is falsified.
	poll.Until(t, 5*patience, "a mismatch was found, and what was loaded again agrees", func() bool {
		s := status(t, p)
		c := collection(s)
		// A mismatch is noted before what it drops is loaded again, and this status read in the
		// other order.
		if c.State == statusz.StateLive && (c.Restarts > restarts || time.Since(created) > patience) {
			if s = status(t, p); len(s.SelfChecks.Mismatches) == 0 {
				falsify()
				return false
			}
			c = collection(s)
		}
		return len(s.SelfChecks.Mismatches) > 0 && c.State == statusz.StateLive && c.SelfCheck.Result == "agrees"
	})
	s := status(t, p)
	c := collection(s)
	if m := s.SelfChecks.Mismatches[0]; len(s.SelfChecks.Mismatches) != 1 || m.Resource != "configmaps" || m.Version != "v1" || m.Representation != "json" ||
		m.Mismatches != 1 || m.Last.IsZero() || m.Age <= 0 {
		t.Errorf("what was ever wrong: %+v", s.SelfChecks)
	}
	if c.SelfCheck.Mismatches != 1 || c.SelfCheck.MismatchAge == nil || c.Restarts == 0 || !s.Healthy {
		t.Errorf("healthy is %v, the collection %+v", s.Healthy, c)
	}
	page := string(look(t, p, "/statusz").Body)
	for _, words := range []string{`<section id="warning"`, "Something wrong may have been answered", "<strong>configmaps</strong> v1, json: 1 mismatch, last ", "✓ healthy"} {
		if !strings.Contains(page, words) {
			t.Errorf("the page does not say %q:\n%s", words, page)
		}
	}
	if text := statusText(t, p); !strings.Contains(text, "healthy, with a warning") || !strings.Contains(text, "configmaps v1, json: 1 mismatch, last ") {
		t.Errorf("listproxy status says:\n%s", text)
	}
	if metrics := look(t, p, "/metrics").Body; !strings.Contains(string(metrics), `listproxy_selfchecks_total{result="mismatch"} 1`) {
		t.Error("metrics do not say the same")
	}
}

// statusText is what listproxy status says of p.
func statusText(t *testing.T, p *harness.Proxy) string {
	t.Helper()
	listproxy, err := harness.BuildProxy(t.Context())
	expect.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), listproxy, "status", "--address", p.AdminURL()).CombinedOutput() // #nosec G204 -- what was built
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
