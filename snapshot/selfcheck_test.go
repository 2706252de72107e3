package snapshot

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestSelfCheckFindsWhatIsWrong: a self-check finds a difference from the upstream, logs it without the object's content, and
// retires the state. The state that is loaded then is right.
func TestSelfCheckFindsWhatIsWrong(t *testing.T) {
	const objects = pageObjects + 200 // the first page ends with n/0499, and the last object is n/0699
	for name, tt := range map[string]struct {
		change  func(index.Tree)
		wantLog string
	}{
		"one byte":                   {change: changeOne("n/0300", changeByte), wantLog: "n/0300 has other bytes"},
		"a revision":                 {change: changeOne("n/0300", func(o *index.Object) { o.Revision-- }), wantLog: "n/0300 is of revision"},
		"a missing object":           {change: removeOne("n/0300"), wantLog: "n/0300 is upstream, but not here"},
		"an additional object":       {change: addOne("n/0300x"), wantLog: "n/0300x is here, but not upstream"},
		"the last object is missing": {change: removeOne("n/0699"), wantLog: "has 199 objects after it, upstream 200"},
		"an object after the last":   {change: addOne("n/0699x"), wantLog: "has 201 objects after it, upstream 200"},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newCheckedWidgets(t, objects, checkEvery)
			corrupted := w.use(t)
			if mismatches := w.mismatchesAfter(t, 1); mismatches > 0 {
				t.Fatalf("before anything is wrong: got %d mismatches, want none; log:\n%s", mismatches, w.log)
			}
			corrupt(corrupted, tt.change)
			if mismatches := w.mismatchesAfter(t, 2); mismatches != 1 {
				t.Fatalf("got %d mismatches, want 1; log:\n%s", mismatches, w.log)
			}
			if why := whyRetired(corrupted); why != reason.Warming {
				t.Errorf("the corrupted collection is retired: got reason %q, want %q", why, reason.Warming)
			}
			expect.Says(t, w.log.String(), tt.wantLog)
			proxytest.AssertNotContains(t, w.log.String(), "valu") // the content of every object has it
			w.expectRight(t)
			if all := w.collections.Stats(); len(all) != 1 || all[0].Losses[reason.Mismatch] != 1 {
				t.Errorf("got statistics %+v, want one collection with one loss because of %q", all, reason.Mismatch)
			}
		})
	}
}

// TestSelfCheckGoesAround: each self-check compares the next checkPages pages. After the last page, the next self-check begins
// with the first page again. A page that differs is compared once more.
func TestSelfCheckGoesAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = (checkPages + 1) * pageObjects
		w := newCheckedWidgets(t, objects, checkEvery)
		w.mismatchesAfter(t, 3)
		var pages []string
		for first := 0; first < objects; first += pageObjects {
			pages = append(pages, fmt.Sprintf("n/%04d\x00", first-1)) // after the last key of the page before
		}
		pages[0] = page1
		firstPages, lastPage := pages[:checkPages], pages[checkPages]
		expect.Same(t, slices.Concat(firstPages, []string{lastPage}, firstPages), w.compared())

		before := len(w.compared())
		corrupt(w.use(t), removeOne(fmt.Sprintf("n/%04d", objects-1)))
		if mismatches := w.mismatchesAfter(t, 4); mismatches != 1 {
			t.Fatalf("got %d mismatches, want 1; log:\n%s", mismatches, w.log)
		}
		expect.Same(t, []string{lastPage, lastPage}, w.compared()[before:])
	})
}

// TestSelfCheckRaisesNoFalseAlarm: a self-check does not count a page as a mismatch if it differs only once, cannot be read,
// or differs after the definition has changed.
func TestSelfCheckRaisesNoFalseAlarm(t *testing.T) {
	const (
		ok      = http.StatusOK
		gone    = http.StatusGone
		tooMany = http.StatusTooManyRequests
		later   = http.StatusGatewayTimeout
	)
	const objects = 10
	const newest = emptyAt + objects // the newest revision
	for name, tt := range map[string]struct {
		times, code int    // so many requests are answered with this status
		body        string // and with this body
		redefined   bool   // the definition changes during the comparison
		want        CheckResult
	}{
		"410 once":                   {times: 1, code: gone, want: CheckAgrees},
		"504 twice":                  {times: 2, code: later, want: CheckAgrees},
		"410 at each try":            {times: 2 * pageTries, code: gone, want: CheckInconclusive},
		"429":                        {times: 1, code: tooMany, want: CheckInconclusive},
		"not JSON":                   {times: 1, code: ok, body: "{", want: CheckInconclusive},
		"a list at another revision": {times: 1, code: ok, body: emptyList(1), want: CheckInconclusive},
		"another state, once":        {times: 1, code: ok, body: emptyList(newest), want: CheckInconclusive},
		"another state, at each try, after a new definition": {
			times: 2 * pageTries, code: ok, body: emptyList(newest), redefined: true, want: CheckInconclusive,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newCheckedWidgets(t, objects, checkEvery)
			answer := answerFirst(tt.times, respond(tt.code, tt.body))
			w.answerComparisons(func(r *http.Request) *http.Response {
				if tt.redefined {
					go changeDefinition(w.collections)
				}
				return answer(r)
			})
			if mismatches := w.mismatchesAfter(t, 1); mismatches != 0 {
				t.Errorf("got %d mismatches, want none; log:\n%s", mismatches, w.log)
			}
			if results := w.collections.SelfChecks(); results[tt.want] != 1 {
				t.Errorf("got results %v, want one %q; log:\n%s", results, tt.want, w.log)
			}
		})
	}
}

// TestUnansweredPageHidesNothing: if the upstream never answers a page, self-checks still compare the pages after it.
func TestUnansweredPageHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCheckedWidgets(t, threePages, checkEvery)
		w.answerComparisons(func(r *http.Request) *http.Response {
			if inmemory.Start(r.URL.Query().Get("continue")) != page2 {
				return nil
			}
			return refuse(http.StatusInternalServerError)(r)
		})
		corrupted := w.use(t)
		w.mismatchesAfter(t, 1)
		corrupt(corrupted, changeOne(keyOnPage3, changeByte))
		if mismatches := w.mismatchesAfter(t, 3); mismatches == 0 {
			t.Errorf("got no mismatch, want some; log:\n%s", w.log)
		}
	})
}

// TestRepeatedMismatchIsNotKept: a collection that differs is loaded anew at once. Each time it differs again within
// mismatchWindow, its requests are forwarded for mismatchBan before it is loaded.
func TestRepeatedMismatchIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCheckedWidgets(t, 10, checkEvery)
		w.answerComparisons(func(r *http.Request) *http.Response {
			return respond(http.StatusOK, strings.Replace(w.list(w.Revision(), inmemory.List{}), "value", "other", 1))(r)
		})
		w.mismatchesAfter(t, 1)
		expectNewest(t, w.use(t), reason.None)
		w.expectLoads(t, 2)
		for n := 2; n <= 3; n++ {
			if mismatches := w.mismatchesAfter(t, uint64(n)); mismatches != n { // #nosec G115 -- a small number
				t.Fatalf("got %d mismatches, want %d", mismatches, n)
			}
			if kept := w.collections.Stats(); len(kept) != 0 {
				t.Errorf("after mismatch %d: got the collections %+v, want none", n, kept)
			}
			if _, unavailable := w.collections.Use(widgets); unavailable != reason.Form {
				t.Errorf("after mismatch %d: got reason %q, want %q", n, unavailable, reason.Form)
			}
			time.Sleep(mismatchBan)
			synctest.Wait()
			w.use(t) // fails the test if the ban goes on
			synctest.Wait()
		}
		w.intercept(nil)
		time.Sleep(mismatchWindow)
		if ban := w.collections.countCheck(widgets, CheckMismatch, time.Now()); ban != 0 {
			t.Errorf("a mismatch after mismatchWindow: got a ban of %v, want none", ban)
		}
	})
}
