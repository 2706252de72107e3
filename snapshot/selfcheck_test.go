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

// TestSelfCheckFindsWhatIsWrong: a self-check compares some pages of a collection with the upstream. If it finds a difference,
// it logs the difference without the object's content, and drops the collection. The state that is loaded then is right.
func TestSelfCheckFindsWhatIsWrong(t *testing.T) {
	const objects = pageObjects + 200 // n/0000 to n/0699; the first page ends with n/0499
	for name, tt := range map[string]struct {
		change  func(index.Tree)
		wantLog string
	}{
		"an object has another byte":     {change: changeOne("n/0300", changeByte), wantLog: "n/0300 has other bytes"},
		"an object has another revision": {change: changeOne("n/0300", lowerRevision), wantLog: "n/0300 is of revision"},
		"an object is missing":           {change: removeOne("n/0300"), wantLog: "n/0300 is upstream, but not here"},
		"there is one object more":       {change: addOne("n/0300x"), wantLog: "n/0300x is here, but not upstream"},
		// The first page says how many objects follow it.
		"the last object is missing": {change: removeOne("n/0699"), wantLog: "has 199 objects after it, upstream 200"},
		"an object follows the last": {change: addOne("n/0699x"), wantLog: "has 201 objects after it, upstream 200"},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newCheckedWidgets(t, objects, checkEvery)
			corrupted := w.mustUse(t)
			w.waitForChecks(t, 1)
			w.expectMismatches(t, 0)

			corrupt(corrupted, tt.change)
			w.waitForChecks(t, 2)
			w.expectMismatches(t, 1)
			if why := whyRetired(corrupted); why != reason.Warming {
				t.Errorf("the corrupted collection: got retired with reason %q, want %q", why, reason.Warming)
			}
			expect.Says(t, w.log.String(), tt.wantLog)
			for _, content := range []string{fieldName, changedFieldName} {
				proxytest.AssertNotContains(t, w.log.String(), content)
			}
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
		// There is one page more than a self-check compares. So the first check compares all pages but the last, the second
		// check the last, and the third check begins anew.
		const objects = (checkPages + 1) * pageObjects
		w := newCheckedWidgets(t, objects, checkEvery)
		w.waitForChecks(t, 3)
		pages := []string{page1}
		for first := pageObjects; first < objects; first += pageObjects {
			lastKeyBefore := fmt.Sprintf("n/%04d", first-1)
			pages = append(pages, lastKeyBefore+"\x00")
		}
		firstPages, lastPage := pages[:checkPages], pages[checkPages]
		expect.Same(t, slices.Concat(firstPages, []string{lastPage}, firstPages), w.compared())

		// The fourth check finds that the last page differs.
		before := len(w.compared())
		lastKey := fmt.Sprintf("n/%04d", objects-1)
		corrupt(w.mustUse(t), removeOne(lastKey))
		w.waitForChecks(t, 4)
		w.expectMismatches(t, 1)
		expect.Same(t, []string{lastPage, lastPage}, w.compared()[before:])
	})
}

// TestSelfCheckRaisesNoFalseAlarm: a self-check does not count a page as a mismatch if it differs only once, cannot be read,
// or differs after the definition has changed.
func TestSelfCheckRaisesNoFalseAlarm(t *testing.T) {
	const objects = 10            // one page
	const eachTry = 2 * pageTries // enough answers for all tries: if a page differs, its try asks for it a second time
	otherRevision := respond(http.StatusOK, emptyList(1))
	otherState := respond(http.StatusOK, emptyList(emptyAt+objects)) // at the newest revision
	for name, tt := range map[string]struct {
		answer    answerer // answers the lists of comparisons
		times     int      // the number of lists that it answers; afterwards, the API server answers
		redefined bool     // the definition changes during the comparison
		want      CheckResult
	}{
		"410 once":                   {answer: refuse(http.StatusGone), times: 1, want: CheckAgrees},
		"504 twice":                  {answer: refuse(http.StatusGatewayTimeout), times: 2, want: CheckAgrees},
		"410 at each try":            {answer: refuse(http.StatusGone), times: eachTry, want: CheckInconclusive},
		"429":                        {answer: refuse(http.StatusTooManyRequests), times: 1, want: CheckInconclusive},
		"not JSON":                   {answer: respond(http.StatusOK, "{"), times: 1, want: CheckInconclusive},
		"a list at another revision": {answer: otherRevision, times: 1, want: CheckInconclusive},
		"another state, once":        {answer: otherState, times: 1, want: CheckInconclusive},
		"another state, at each try, after a new definition": {
			answer: otherState, times: eachTry, redefined: true, want: CheckInconclusive,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newCheckedWidgets(t, objects, checkEvery)
			answer := answerFirst(tt.times, tt.answer)
			w.answerComparisons(func(r *http.Request) *http.Response {
				if tt.redefined {
					go changeDefinition(w.collections)
				}
				return answer(r)
			})
			w.waitForChecks(t, 1)
			w.expectMismatches(t, 0)
			if results := w.collections.SelfChecks(); results[tt.want] != 1 {
				t.Errorf("got results %v, want one %q; log:\n%s", results, tt.want, w.log)
			}
		})
	}
}

// TestUnansweredPageHidesNothing: if the upstream never gives a page, self-checks still compare the pages after it.
func TestUnansweredPageHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCheckedWidgets(t, threePages, checkEvery)
		w.answerComparisons(func(r *http.Request) *http.Response {
			isPage2 := inmemory.Start(r.URL.Query().Get("continue")) == page2
			if !isPage2 {
				return nil
			}
			return refuse(http.StatusInternalServerError)(r)
		})
		corrupted := w.mustUse(t)
		w.waitForChecks(t, 1) // it ends at page 2
		corrupt(corrupted, changeOne(keyOnPage3, changeByte))
		w.waitForChecks(t, 3)
		w.expectMismatches(t, 1)
	})
}

// TestRepeatedMismatchIsNotKept: after its first mismatch, a collection is loaded anew at once. After each mismatch that
// follows another one within mismatchWindow, the collection is banned: its requests are forwarded for mismatchBan before it is
// loaded again.
func TestRepeatedMismatchIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Whatever is loaded, a comparison finds another byte.
		w := newCheckedWidgets(t, 10, checkEvery)
		w.answerComparisons(func(r *http.Request) *http.Response {
			list := w.list(w.Revision(), inmemory.List{})
			differing := strings.Replace(list, fieldName, changedFieldName, 1)
			return respond(http.StatusOK, differing)(r)
		})

		// The first mismatch.
		w.waitForChecks(t, 1)
		expectUnavailable(t, w.mustUse(t), reason.None)
		w.expectLoads(t, 2)

		// The second and the third mismatch.
		for n := 2; n <= 3; n++ {
			w.waitForChecks(t, n)
			w.expectMismatches(t, n)
			if kept := w.collections.Stats(); len(kept) != 0 {
				t.Errorf("after mismatch %d: got the collections %+v, want none", n, kept)
			}
			if _, unavailable := w.collections.Use(widgets); unavailable != reason.Form {
				t.Errorf("after mismatch %d: got reason %q, want %q", n, unavailable, reason.Form)
			}
			time.Sleep(mismatchBan)
			synctest.Wait()
			w.mustUse(t) // the ban is over
			synctest.Wait()
		}

		// A mismatch after mismatchWindow is not a repeated one.
		w.intercept(nil)
		time.Sleep(mismatchWindow)
		if w.collections.countCheck(widgets, CheckMismatch, time.Now()) {
			t.Error("a mismatch after mismatchWindow counts as repeated")
		}
	})
}
