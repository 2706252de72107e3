package feed

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// Rule 3: after every failure but 410 and doubt, the watch is resumed where it was. Nothing is
// loaded again, and no revision is lost.
func TestResumeInPlace(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "resume")
	refuse := func(code int, watchesOnly bool) func(*rig, string, kind) {
		return func(r *rig, _ string, k kind) {
			var refused atomic.Int32
			r.onFault(func(w http.ResponseWriter, req *http.Request) bool {
				return of(req, k) && (anyWatch(req.URL.Query()) || !watchesOnly) && refused.Add(1) <= 3 && hop.Refuse(w, code)
			})
			r.hop.CutAll()
		}
	}
	line := func(change func(line []byte) ([]byte, error)) func(*rig, string, kind) {
		return func(r *rig, ns string, k kind) { r.nextLine(k, ns, `"touched":"while broken"`, change) }
	}
	// Each has a kind of its own, since a feed that failed often waits longer.
	tests := []struct {
		name string
		kind kind
		harm func(r *rig, namespace string, k kind)
	}{
		{"all connections cut", configMaps, func(r *rig, _ string, _ kind) { r.hop.CutAll() }},
		{"cut in the middle of an event", limitRanges, line(func(l []byte) ([]byte, error) { return l[:len(l)/2], hop.ErrCut })},
		{"ended in the middle of an event", podTemplates, line(func(l []byte) ([]byte, error) { return l[:len(l)/2], io.EOF })},
		{"cut before the newline", resourceQuotas, line(func(l []byte) ([]byte, error) { return l[:len(l)-1], hop.ErrCut })},
		{"cut after an event", networkPolicies, line(func(l []byte) ([]byte, error) { return l, hop.ErrCut })},
		{"an event lost and the stream ended", budgets, line(func([]byte) ([]byte, error) { return nil, io.EOF })},
		{"ERROR event with code 500", claims, line(func([]byte) ([]byte, error) { return hop.ErrorEvent(http.StatusInternalServerError, false), nil })},
		{"ERROR event with code 429", endpointSlices, line(func([]byte) ([]byte, error) { return hop.ErrorEvent(http.StatusTooManyRequests, false), nil })},
		{"refused with 503", deployments, refuse(http.StatusServiceUnavailable, false)},
		{"refused with 429", replicaSets, refuse(http.StatusTooManyRequests, false)},
		{"refused with 500", daemonSets, refuse(http.StatusInternalServerError, false)},
		{"watches refused with 503", statefulSets, refuse(http.StatusServiceUnavailable, true)},
		{"watches refused with 429", widgets, refuse(http.StatusTooManyRequests, true)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.unhurried(t, tt.kind, ns, func(r *rig, ns string) error {
				return resumes(t, r, tt.kind, ns, func() { tt.harm(r, ns, tt.kind) })
			})
		})
	}
}

// resumes returns an error if harm makes the feed lose something.
func resumes(t *testing.T, r *rig, k kind, ns string, harm func()) error {
	t.Helper()
	r.create(t, k, ns, "first")
	r.await(hitAny, k.Path(""), anyVersion())
	known := []string{r.create(t, k, ns, "a"), r.touch(t, k, ns, "first", "before")}
	r.await(hitNotOlderThan, k.Path(ns), notOlderThan(known[1]))

	harm()
	defer r.onFault(nil)
	defer r.changeLines(nil)
	known = append(known, r.touch(t, k, ns, "a", "while broken"), r.create(t, k, ns, "b"))
	r.remove(t, k, ns, "a")
	known = append(known, r.touch(t, k, ns, "first", "after"))

	r.await(hitNotOlderThan, k.Path(ns), notOlderThan(known[len(known)-1]))
	if err := r.known(k.Path(ns), known...); err != nil {
		return err
	}
	return r.loaded(k, 1)
}

// nextLine changes the next line of the feed's watch about an object in the namespace that has a
// mark, once. Without the mark it could be the change before, with which a watch begins that was
// resumed.
func (r *rig) nextLine(k kind, namespace, mark string, change func(line []byte) ([]byte, error)) {
	var done atomic.Bool
	r.changeLines(func(req *http.Request, line []byte) ([]byte, error) {
		if !of(req, k) || !isAbout(line, namespace, mark) || done.Swap(true) {
			return line, nil
		}
		return change(line)
	})
}

// Rule 6: after an ERROR event with code 410 the state is loaded anew. Until then what was known is
// answered; then nothing of what was before.
func TestGap(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{configMaps, widgets} {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, shared, rigOptions{})
			r.unhurried(t, k, r.namespace(t, "gap-"+k.Plural), func(r *rig, ns string) error {
				list := k.Path(ns)
				var before []string
				for i := range 4 {
					before = append(before, r.create(t, k, ns, fmt.Sprintf("before-%d", i)))
				}
				r.await(hitAny, list, anyVersion())
				before = append(before[:0], r.touch(t, k, ns, "before-0", "again"), r.create(t, k, ns, "before-4"))
				r.await(hitNotOlderThan, list, notOlderThan(before[1]))
				page, err := r.comes(hitExact, list, firstPage(before[1]))
				if err != nil {
					return err
				}
				token := page.Meta().Continue

				// The event that is lost is the first that nobody is told; the upstream is kept away
				// until more has happened.
				var away atomic.Bool
				r.onFault(func(w http.ResponseWriter, req *http.Request) bool {
					return of(req, k) && away.Load() && hop.Refuse(w, http.StatusServiceUnavailable)
				})
				r.nextLine(k, ns, `"name":"in-the-gap"`, func([]byte) ([]byte, error) {
					away.Store(true)
					return hop.ErrorEvent(http.StatusGone, false), nil
				})
				gap := []string{
					r.create(t, k, ns, "in-the-gap"),
					r.touch(t, k, ns, "before-1", "in the gap"),
				}
				r.until("the watch to end", func() error {
					if !away.Load() {
						return errors.New("it goes on")
					}
					return nil
				})
				r.expect(hitAny, list, anyVersion())
				r.expect(fwdNotProven, list, exactly(before[1]))
				r.expect(fwdNotProven, list, exactly(gap[0]))
				r.remove(t, k, ns, "before-2")
				gap = append(gap, r.touch(t, k, ns, "before-3", "in the gap"))

				away.Store(false)
				r.await(hitNotOlderThan, list, notOlderThan(gap[2]))
				after := []string{r.create(t, k, ns, "after")}
				after = append(after, r.touch(t, k, ns, "after", "again"))
				r.await(hitNotOlderThan, list, notOlderThan(after[1]))
				for _, revision := range after {
					if err := r.known(list, revision); err != nil {
						return err
					}
					if _, err := r.comes(hitExact, k.Path(""), firstPage(revision)); err != nil {
						return err
					}
				}
				for _, revision := range append(before, gap[:2]...) {
					r.expect(fwdHistory, list, exactly(revision))
					page := r.expect(fwdHistory, list, firstPage(revision))
					r.expect(fwdHistory, list, query("limit=2", "continue="+page.Meta().Continue))
				}
				r.expect(fwdHistory, list, query("limit=2", "continue="+token)) // of a walk that began before
				return r.loaded(k, 2)
			})
		})
	}
}
