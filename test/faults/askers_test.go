package faults

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

type (
	kind       = kinds.Kind
	collection = load.Collection
	question   = load.Question
)

var (
	configMaps = load.ConfigMaps
	pods       = load.Pods
	widgets    = kind{APIVersion: "faults.test/v1", Name: "Widget", Plural: "widgets", Rest: `{"spec":{"z":1,"a":{"y":[]}}}`}

	// changing are the kinds whose objects are written and asked for all the time.
	changing = []kind{configMaps, pods, widgets}

	// fleeting objects are created and deleted at once. None is written before the first fault, so until then their collection
	// has one object, the marker.
	fleeting = kind{
		APIVersion: "v1", Name: "PodTemplate", Plural: "podtemplates",
		Rest: `{"template":{"spec":{"containers":[{"name":"main","image":"registry.test/main:1"}]}}}`,
	}
)

// collections returns the collections of the changing kinds: each kind in each representation that it has.
func collections() []collection { return load.Collections(changing...) }

func randomCollection() collection {
	all := collections()
	return all[rand.IntN(len(all))]
}

const (
	mixedAskers       = 2                     // the number of goroutines that run askMixed
	askEvery          = 15 * time.Millisecond // the pause of each asking goroutine between two questions
	writeEvery        = 60 * time.Millisecond // the pause of writeAll between two writes
	writesPerFleeting = 5                     // each fifth write, a fleeting object is written, too
	namesPerNamespace = 12                    // writeAll writes object-00 to object-11 of each kind
	pageSize          = 7
	slowPause         = 300 * time.Millisecond // the pause of a slow walk before each next page
	noPause           = 0
	noMinRevision     = 0        // an answer of any revision will do
	marker            = "marker" // the name of an object that writeAll leaves alone
)

// startLoad starts goroutines that write, ask and verify, until the test ends. conclude stops the writes and the questions.
// Then it waits until all followers have the true state and all answers are verified. (A timeline is the history of one etcd.
// If etcd was replaced, conclude counts a mistake for each collection that was seen on the old timeline after it had been seen
// on the new one.)
func (s *scene) startLoad() (conclude func()) {
	ctx, cancel := context.WithCancel(s.Context())
	loadCtx, stopLoad := context.WithCancel(ctx)
	var loading, verifying sync.WaitGroup
	verifying.Go(func() { s.Verifier.Work(ctx) })
	loading.Go(func() { s.writeAll(loadCtx) })
	// Each sort of question has its own goroutine. A request that is forwarded to a paused API server holds up only its own
	// sort.
	loading.Go(func() { s.askAnyVersion(loadCtx) })
	loading.Go(func() { s.askConsistent(loadCtx) })
	loading.Go(func() { s.walkSlowly(loadCtx) })
	for range mixedAskers {
		loading.Go(func() { s.askMixed(loadCtx) })
	}
	s.Cleanup(func() {
		cancel()
		loading.Wait()
		verifying.Wait()
	})
	return func() {
		s.Helper()
		stopLoad()
		loading.Wait()
		s.awaitConverged()
		if err := s.Verifier.Drain(s.Context(), patience); err != nil {
			s.Error(err)
		}
		for _, relapse := range s.Verifier.Relapses() {
			s.Tally.AddMistake("%s", relapse)
		}
	}
}

// touch changes the marker of a kind in a namespace, and returns its revision.
func (s *scene) touch(ctx context.Context, k kind, namespace string) (uint64, error) {
	a, err := s.Touch(ctx, s.direct, k, namespace, marker)
	if err != nil {
		return 0, err
	}
	return a.Revision()
}

// writeAll writes objects of all kinds until ctx ends. Errors are ignored: the API server may be away.
func (s *scene) writeAll(ctx context.Context) {
	for turn := 0; clock.Sleep(ctx, writeEvery); turn++ {
		k, namespace := changing[turn%len(changing)], s.randomNamespace()
		s.pauseWrites.RLock()
		if turn%writesPerFleeting == 0 && s.writesFleeting.Load() {
			s.writeFleeting(ctx, namespace, load.ObjectName(namesPerNamespace+turn))
		}
		name := load.ObjectName(rand.IntN(namesPerNamespace))
		percent := rand.IntN(100)
		switch {
		case percent < 50: // change
			_, _ = s.Touch(ctx, s.direct, k, namespace, name)
		case percent < 80: // create
			_, _ = s.Write(ctx, s.direct, k, http.MethodPost, k.Path(namespace), k.Object(name))
		default: // delete
			_, _ = s.Write(ctx, s.direct, k, http.MethodDelete, load.DeletePath(k, namespace, name), nil)
		}
		s.pauseWrites.RUnlock()
	}
}

// writeFleeting creates a fleeting object and deletes it.
func (s *scene) writeFleeting(ctx context.Context, namespace, name string) {
	_, _ = s.Write(ctx, s.direct, fleeting, http.MethodPost, fleeting.Path(namespace), fleeting.Object(name))
	_, _ = s.Write(ctx, s.direct, fleeting, http.MethodDelete, load.DeletePath(fleeting, namespace, name), nil)
}

func (s *scene) randomNamespace() string { return s.namespaces[rand.IntN(len(s.namespaces))] }

// askAnyVersion asks for lists of any version (resourceVersion=0) until ctx ends. If memory gave a state that is too old, it
// would give it to these lists first.
func (s *scene) askAnyVersion(ctx context.Context) {
	for clock.Sleep(ctx, askEvery) {
		s.pauseAnyVersion.RLock()
		s.askAndForget(ctx, question{Collection: randomCollection(), Query: ask.AnyVersion}, noMinRevision)
		s.pauseAnyVersion.RUnlock()
	}
}

// askConsistent asks for consistent lists until ctx ends.
func (s *scene) askConsistent(ctx context.Context) {
	for clock.Sleep(ctx, askEvery) {
		q := question{Collection: randomCollection()}
		s.pauseAsks.RLock()
		s.askAndForget(ctx, q, s.Ledger.Newest(q.Kind))
		s.pauseAsks.RUnlock()
	}
}

// askMixed asks for lists of every sort until ctx ends.
func (s *scene) askMixed(ctx context.Context) {
	for clock.Sleep(ctx, askEvery) {
		q := question{Collection: randomCollection()}
		if rand.IntN(2) == 0 {
			q.Namespace = s.randomNamespace()
		}
		s.pauseAsks.RLock()
		s.askOnce(ctx, q)
		s.pauseAsks.RUnlock()
	}
}

// askOnce sends one question. Of all questions 40 % ask for any version, 20 % for a list not older than the newest write, 20 %
// for an exact revision, and 20 % walk through pages (not in protobuf). Until there is a write, all ask for any version.
func (s *scene) askOnce(ctx context.Context, q question) {
	newest, recent := s.Ledger.Newest(q.Kind), s.Ledger.Recent()
	percent := rand.IntN(100)
	isBeforeFirstWrite := newest == 0 || recent == 0
	switch {
	case percent < 40 || isBeforeFirstWrite:
		q.Query = ask.AnyVersion
		s.askAndForget(ctx, q, noMinRevision)
	case percent < 60:
		q.Query = ask.NotOlderThan(newest)
		s.askAndForget(ctx, q, newest)
	case percent < 80:
		q.Query = ask.Exactly(recent)
		s.askAndForget(ctx, q, recent)
	case q.Representation != load.AsProtobuf:
		s.walk(ctx, q, recent, noPause)
	}
}

// walkSlowly walks through the pages of lists until ctx ends. It pauses between two pages, so that faults happen there.
func (s *scene) walkSlowly(ctx context.Context) {
	for clock.Sleep(ctx, askEvery) {
		s.pauseAsks.RLock()
		if revision := s.Ledger.Recent(); revision > 0 {
			s.walk(ctx, question{Collection: collection{Kind: configMaps, Representation: load.AsJSON}}, revision, slowPause)
		}
		s.pauseAsks.RUnlock()
	}
}

// walk reads all pages of a list, with a pause before each next page. Half of the walks read the list at exactly the revision,
// and half read a consistent list.
func (s *scene) walk(ctx context.Context, q question, revision uint64, pause time.Duration) {
	q.Limit = pageSize
	if rand.IntN(2) == 0 {
		q.Query = ask.FirstPage(pageSize, ask.Exactly(revision))
		s.walkPages(ctx, q, noMinRevision, pause)
		return
	}
	q.Query = "limit=" + strconv.Itoa(pageSize)
	s.walkPages(ctx, q, s.Ledger.Newest(q.Kind), pause)
}

// walkPages reads the page that q asks for and all pages after it. The first page must be of minRevision or later, and all
// others of the first page's revision.
func (s *scene) walkPages(ctx context.Context, q question, minRevision uint64, pause time.Duration) {
	page, _, err := s.Ask(ctx, s.proxied, q, minRevision)
	for err == nil && page.Next != "" && len(page.Objects) > 0 && clock.Sleep(ctx, pause) {
		first := page.Revision
		q.Query = ask.NextPage(pageSize, page.Next)
		q.After = page.Objects[len(page.Objects)-1]
		page, _, err = s.Ask(ctx, s.proxied, q, first)
		if err == nil && page.Revision != first {
			s.Tally.AddMistake("%s: a page of revision %d after one of %d", q, page.Revision, first)
		}
	}
}

// askAndForget asks a question whose answer only the tally and the verifier need.
func (s *scene) askAndForget(ctx context.Context, q question, minRevision uint64) {
	_, _, _ = s.Ask(ctx, s.proxied, q, minRevision)
}
