package feed

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

var (
	horizontalAutoscalers = namespaced("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers",
		`{"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}}}`)
	cronJobs = namespaced("batch/v1", "CronJob", "cronjobs",
		`{"spec":{"schedule":"@daily","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"example.com/main:1"}]}}}}}}`)
	ingressClasses = clusterScoped("networking.k8s.io/v1", "IngressClass", "ingressclasses", `{"spec":{"controller":"example.com/x"}}`)
)

func anyRequest(url.Values) bool { return true }

// Rule 3: watches that end as soon as they begin are not opened again at once.
func TestResumePace(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const (
		trouble = 5 * time.Second
		// Measured: 5 watches and as many probes.
		watches, requests = 30, 60
	)
	tests := []struct {
		name string
		kind kind
		line []byte
	}{
		{"ended at once", horizontalAutoscalers, nil},
		{"ERROR event with code 500", cronJobs, hop.ErrorEvent(http.StatusInternalServerError, false)},
	}
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "pace")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := tt.kind
			r.unhurried(t, k, ns, func(r *rig, ns string) error {
				list := k.Path(ns)
				r.create(t, k, ns, "first")
				r.await(hitAny, list, anyVersion())
				known := []string{r.touch(t, k, ns, "first", "before")}
				r.await(hitNotOlderThan, list, notOlderThan(known[0]))

				var on atomic.Bool
				on.Store(true)
				r.onFault(func(w http.ResponseWriter, req *http.Request) bool {
					if !on.Load() || !of(req, k) || !anyWatch(req.URL.Query()) {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusOK)
					_, _ = w.Write(tt.line)
					return true
				})
				watched, asked := r.count(k, anyWatch), r.count(k, anyRequest)
				r.hop.CutAll()
				begun := time.Now()
				r.until("the time to count", func() error {
					if _, err := r.try(list, exactly(known[0])); err != nil {
						return err
					}
					if spent, n := time.Since(begun), r.count(k, anyWatch)-watched; spent < trouble || n < 2 {
						return fmt.Errorf("%v have passed, and %d watches", spent, n)
					}
					return nil
				})
				watched, asked = r.count(k, anyWatch)-watched, r.count(k, anyRequest)-asked
				t.Logf("%d watches, %d requests in %v", watched, asked, time.Since(begun))
				if watched > watches || asked > requests {
					t.Errorf("%d watches (2 to %d) and %d requests (at most %d)", watched, watches, asked, requests)
				}
				known = append(known, r.create(t, k, ns, "meanwhile"))
				on.Store(false)

				known = append(known, r.touch(t, k, ns, "first", "after"))
				r.await(hitNotOlderThan, list, notOlderThan(known[2]))
				if err := r.known(list, known...); err != nil {
					return err
				}
				if _, err := r.comes(hitAny, list, anyVersion()); err != nil {
					return err
				}
				return r.loaded(k, 1)
			})
		})
	}
}

// Rule 6: the heartbeat of a quiet resource leaves its watch alone for as long as it can, also
// where there are writes elsewhere all the time.
func TestHeartbeatPace(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	k := ingressClasses
	const (
		bound, life = 20 * time.Second, 45 * time.Second
		// A heartbeat is due when half the bound is over, and takes a short watch and the one
		// after it. Measured: 6 to 7.
		watches = 12
	)
	r := newRig(t, shared, rigOptions{bound: bound})
	r.unhurried(t, k, r.namespace(t, "pace-busy"), func(r *rig, ns string) error {
		r.create(t, k, "", "quiet-beside-"+ns)
		defer r.busy(t, configMaps, ns)()
		r.await(hitAny, k.Path(""), anyVersion())
		watched, probes, broken := r.count(k, anyWatch), r.count(k, isProbe), r.broken(k)
		begun, live := time.Now(), newPulse(bound)
		r.until("a while of hits", func() error {
			if err := r.feel(live, k); err != nil {
				return err
			}
			if spent := time.Since(begun); spent < life {
				return fmt.Errorf("only %v have passed", spent)
			}
			return nil
		})
		watched, probes = r.count(k, anyWatch)-watched, r.count(k, isProbe)-probes
		spent := time.Since(begun)
		broken = r.broken(k) - broken
		t.Logf("%d watches, %d of them since one was broken, and %d probes in %v", watched, broken, probes, spent)
		if most := int(watches*spent/life) + broken; watched > most {
			return fmt.Errorf("%d watches in %v, more than %d", watched, spent, most)
		}
		if probes < 2 {
			return errors.New("the feed did not probe: this test has shown nothing")
		}
		return r.loaded(k, 1)
	})
}

// broken is how often listproxy has had to open a watch of a resource because the upstream did not
// answer a probe, or refused a watch.
func (r *rig) broken(k kind) int {
	n := 0
	for line := range strings.Lines(r.proxy.Log()) {
		if strings.Contains(line, fmt.Sprintf(`msg="watch not resumed yet" collection="%s.`, k.Plural)) {
			n++
		}
	}
	return n
}
