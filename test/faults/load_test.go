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
	fieldsOf   = kinds.Fields
	kind       = kinds.Kind
	collection = load.Collection
	question   = load.Question
)

var (
	configMaps = load.ConfigMaps
	pods       = load.Pods
	widgets    = kind{APIVersion: "faults.test/v1", Name: "Widget", Plural: "widgets", Rest: `{"spec":{"z":1,"a":{"y":[]}}}`}

	changing = []kind{configMaps, pods, widgets}

	// fleeting objects live for a moment only, and there are none before the fault: but for the marker, their
	// collection is as it was loaded.
	fleeting = kind{APIVersion: "v1", Name: "PodTemplate", Plural: "podtemplates", Rest: `{"template":{"spec":{"containers":[{"name":"main","image":"registry.test/main:1"}]}}}`}
)

func collections() []collection { return load.Collections(changing...) }

const (
	askers     = 2 // beside one that asks for the newest state only
	askEvery   = 15 * time.Millisecond
	writeEvery = 60 * time.Millisecond
	// pauseOfPages is before each next page of a slow walk.
	pauseOfPages = 300 * time.Millisecond
	names        = 12 // of objects in each namespace
	pageSize     = 7
	// marker is an object that writers leave alone.
	marker = "marker"
)

// load verifies, writes and asks until the test ends. The function that it returns ends the writers and
// askers, waits until all followers know the true state and all answers are compared, and notes what only
// shows then.
func (s *scene) load() (conclude func()) {
	ctx, cancel := context.WithCancel(s.Context())
	asks, stop := context.WithCancel(ctx)
	var asking, verifying sync.WaitGroup
	verifying.Go(func() { s.Oracle.Work(ctx) })
	asking.Go(func() { s.churn(asks) })
	asking.Go(func() { s.askNewest(asks) })
	asking.Go(func() { s.askRecent(asks) })
	asking.Go(func() { s.pageSlowly(asks) })
	for range askers {
		asking.Go(func() { s.ask(asks) })
	}
	s.Cleanup(func() {
		cancel()
		asking.Wait()
		verifying.Wait()
	})
	return func() {
		s.Helper()
		stop()
		asking.Wait()
		s.settled()
		if err := s.Oracle.Drain(s.Context(), patience); err != nil {
			s.Error(err)
		}
		for _, relapse := range s.Oracle.Relapses() {
			s.Tally.Wrong("%s", relapse)
		}
	}
}

// touch changes the marker of a kind in a namespace and returns its revision.
func (s *scene) touch(ctx context.Context, k kind, namespace string) (uint64, error) {
	a, err := s.Touch(ctx, s.direct, k, namespace, marker)
	if err != nil {
		return 0, err
	}
	return a.Revision()
}

// churn writes until ctx ends. What fails, fails: the API server may be away.
func (s *scene) churn(ctx context.Context) {
	for turn := 0; clock.Sleep(ctx, writeEvery); turn++ {
		k := changing[turn%len(changing)]
		ns, name := s.namespaces[rand.IntN(len(s.namespaces))], load.NameOf(rand.IntN(names))
		s.writing.RLock()
		if turn%5 == 0 && s.writesFleeting.Load() {
			name := load.NameOf(names + turn)
			_, _ = s.Write(ctx, s.direct, fleeting, http.MethodPost, fleeting.Path(ns), fleeting.Object(name))
			_, _ = s.Write(ctx, s.direct, fleeting, http.MethodDelete, load.Delete(fleeting, ns, name), nil)
		}
		switch dice := rand.IntN(10); {
		case dice < 5:
			_, _ = s.Touch(ctx, s.direct, k, ns, name)
		case dice < 8:
			_, _ = s.Write(ctx, s.direct, k, http.MethodPost, k.Path(ns), k.Object(name))
		default:
			_, _ = s.Write(ctx, s.direct, k, http.MethodDelete, load.Delete(k, ns, name), nil)
		}
		s.writing.RUnlock()
	}
}

// askNewest asks for the newest state until ctx ends. It does not wait for what is forwarded in any
// case, and so is there when an old state would be given.
func (s *scene) askNewest(ctx context.Context) {
	for clock.Sleep(ctx, askEvery) {
		all := collections()
		s.resting.RLock()
		s.put(ctx, question{Collection: all[rand.IntN(len(all))], Query: ask.AnyVersion}, 0)
		s.resting.RUnlock()
	}
}

// askRecent asks for lists that hold all that was written before, until ctx ends. What is not
// proven is forwarded, and waits for an API server that stands still: nobody else is kept waiting
// by that.
func (s *scene) askRecent(ctx context.Context) {
	for clock.Sleep(ctx, askEvery) {
		all := collections()
		q := question{Collection: all[rand.IntN(len(all))]}
		s.asking.RLock()
		s.put(ctx, q, s.Ledger.Newest(q.Kind))
		s.asking.RUnlock()
	}
}

// ask asks for everything until ctx ends.
func (s *scene) ask(ctx context.Context) {
	for clock.Sleep(ctx, askEvery) {
		all := collections()
		q := question{Collection: all[rand.IntN(len(all))]}
		if rand.IntN(2) == 0 {
			q.Namespace = s.namespaces[rand.IntN(len(s.namespaces))]
		}
		s.asking.RLock()
		newest, some := s.Ledger.Newest(q.Kind), s.Ledger.Recent()
		switch dice := rand.IntN(10); {
		case dice < 4 || some == 0 || newest == 0 && dice < 6:
			q.Query = ask.AnyVersion
			s.put(ctx, q, 0)
		case dice < 6:
			q.Query = ask.NotOlderThan(newest)
			s.put(ctx, q, newest)
		case dice < 8:
			q.Query = ask.Exactly(some)
			s.put(ctx, q, some)
		case q.Form != load.AsProtobuf:
			s.walk(ctx, q, some, 0)
		}
		s.asking.RUnlock()
	}
}

// pageSlowly walks through pages until ctx ends, and waits before each next one: whatever happens, it happens between
// two pages.
func (s *scene) pageSlowly(ctx context.Context) {
	for clock.Sleep(ctx, askEvery) {
		s.asking.RLock()
		if some := s.Ledger.Recent(); some > 0 {
			s.walk(ctx, question{Collection: collection{Kind: configMaps, Form: load.AsJSON}}, some, pauseOfPages)
		}
		s.asking.RUnlock()
	}
}

// walk reads all pages, at a revision or of the newest state, with a pause before each next one.
func (s *scene) walk(ctx context.Context, q question, revision uint64, pause time.Duration) {
	q.Limit = pageSize
	q.Query = ask.FirstPage(pageSize, ask.Exactly(revision))
	atLeast := uint64(0)
	if rand.IntN(2) == 0 {
		q.Query = "limit=" + strconv.Itoa(pageSize)
		atLeast = s.Ledger.Newest(q.Kind)
	}
	page, _, err := s.Put(ctx, s.via, q, atLeast)
	for err == nil && page.Next != "" && len(page.Objects) > 0 && clock.Sleep(ctx, pause) {
		at := page.Revision
		q.Query, q.After = ask.NextPage(pageSize, page.Next), page.Objects[len(page.Objects)-1]
		page, _, err = s.Put(ctx, s.via, q, at)
		if err == nil && page.Revision != at {
			s.Tally.Wrong("%s: a page of revision %d after one of %d", q, page.Revision, at)
		}
	}
}

// put puts a question to listproxy, of whose answer only the tally and the oracle hear.
func (s *scene) put(ctx context.Context, q question, atLeast uint64) {
	_, _, _ = s.Put(ctx, s.via, q, atLeast)
}
