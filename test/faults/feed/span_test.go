package feed

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
)

// Rules 3 and 4: an ERROR event with code 410 ends the span. Nothing is answered across the gap
// to the next, and both sides are.
func TestGap(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{configMaps, widgets} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, shared, rigOptions{})
			r.unhurried(t, k, r.namespace(t, "gap-"+k.plural), func(r *rig, ns string) error {
				list := k.list(ns)
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

				// The event that is lost is the first of the gap; the upstream is kept away
				// until more has happened.
				var away atomic.Bool
				r.onFault(func(w http.ResponseWriter, req *http.Request) bool {
					return of(req, k) && away.Load() && status(w, http.StatusServiceUnavailable)
				})
				r.nextLine(k, ns, `"name":"in-the-gap"`, func([]byte) ([]byte, error) {
					away.Store(true)
					return errorEvent(http.StatusGone), nil
				})
				gap := []string{
					r.create(t, k, ns, "in-the-gap"),
					r.touch(t, k, ns, "before-1", "in the gap"),
				}
				r.remove(t, k, ns, "before-2")
				gap = append(gap, r.touch(t, k, ns, "before-3", "in the gap"))
				r.await(fwdWarming, list, anyVersion())
				r.expect(fwdWarming, list, notOlderThan(before[1]))
				if err := r.known(list, before[1]); err != nil {
					return err
				}
				r.expect(fwdWarming, list, exactly(gap[0])) // nobody knows yet how far it goes

				away.Store(false)
				r.await(hitAny, list, anyVersion())
				after := []string{r.create(t, k, ns, "after")}
				after = append(after, r.touch(t, k, ns, "after", "again"))
				r.await(hitNotOlderThan, list, notOlderThan(after[1]))
				for _, revision := range append(before, after...) {
					if err := r.known(list, revision); err != nil {
						return err
					}
					if _, err := r.comes(hitExact, k.list(""), firstPage(revision)); err != nil {
						return err
					}
				}
				for _, revision := range gap[:2] {
					r.expect(fwdHistory, list, exactly(revision))
					page := r.expect(fwdHistory, list, firstPage(revision))
					r.expect(fwdHistory, list, query("limit=2", "continue="+page.Meta().Continue))
				}
				// A walk that began before the gap goes on.
				for token != "" {
					if page, err = r.comes(hitContinue, list, query("limit=2", "continue="+token)); err != nil {
						return err
					}
					token = page.Meta().Continue
				}
				return r.loaded(k, 2)
			})
		})
	}
}
