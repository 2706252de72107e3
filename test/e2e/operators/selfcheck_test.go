package operators

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/admin"
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
	metric := func(line string) bool { return strings.Contains(string(look(t, p, "/metrics").Body), "\n"+line) }
	isLive := func(s admin.Status) bool { return len(s.Collections) == 1 && s.Collections[0].State == admin.StateLive }
	poll.Until(t, patience, "a check agrees", func() bool {
		return isLive(status(t, p)) && !metric(`listproxy_selfchecks_total{result="agrees"} 0`)
	})

	objects, created := 0, time.Time{}
	falsify := func() {
		objects++
		name := fmt.Sprintf("falsified-%d", objects)
		next.Store(&name)
		created = time.Now()
		object := kinds.Kind{APIVersion: "v1", Name: "ConfigMap", Rest: `{"data":{"said":"truth"}}`}.Object(name)
		if _, err := direct.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/default/configmaps", object); err != nil {
			t.Fatal(err)
		}
	}
	falsify()
	// It is looked at again after twenty seconds, before it counts. Where the watch breaks
	// meanwhile, what is wrong goes as what contradicts the resume point, and no check has found it: then
	// another object is falsified.
	poll.Until(t, 5*patience, "a mismatch was found, and the state is loaded again", func() bool {
		s := status(t, p)
		if isLive(s) && len(s.Mismatches) == 0 && time.Since(created) > patience {
			falsify()
		}
		return isLive(s) && len(s.Mismatches) > 0
	})
	s := status(t, p)
	if m := s.Mismatches; len(m) != 1 || m[0].Resource != "configmaps" || m[0].Version != "v1" || m[0].Representation != "json" ||
		m[0].Times != 1 || m[0].Age <= 0 || !s.Healthy {
		t.Errorf("healthy is %v, what was ever wrong: %+v", s.Healthy, m)
	}
	if !slices.ContainsFunc(s.Changes, func(c admin.Change) bool { return c.Of == "configmaps/json" && c.Cause == string(reason.Mismatch) }) {
		t.Errorf("what changed: %+v", s.Changes)
	}
	page := string(look(t, p, "/statusz").Body)
	for _, words := range []string{"Something wrong may have been answered", "<strong>configmaps</strong> v1 json: 1 times, the last ", "✓ healthy"} {
		if !strings.Contains(page, words) {
			t.Errorf("the page does not say %q:\n%s", words, page)
		}
	}
	if text := statusText(t, p); !strings.Contains(text, "is healthy") || !strings.Contains(text, "something wrong may have been answered of configmaps v1 json: 1 times, the last ") {
		t.Errorf("listproxy status says:\n%s", text)
	}
	if !metric(`listproxy_selfchecks_total{result="mismatch"} 1`) {
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
