package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

const (
	askers     = 2 // beside one that asks for the newest state only
	askEvery   = 15 * time.Millisecond
	writeEvery = 60 * time.Millisecond
	names      = 12 // of objects in each namespace
	pageSize   = 7
	// marker is an object that writers leave alone.
	marker = "marker"
)

func nameOf(i int) string { return fmt.Sprintf("object-%02d", i) }

// load verifies, writes and asks until the functions that it returns are called: quiet ends the writers
// and askers, and end all of it. Both may be called again.
func (s *scene) load() (quiet, end func()) {
	ctx, cancel := context.WithCancel(s.Context())
	asks, stop := context.WithCancel(ctx)
	var asking, verifying sync.WaitGroup
	verifying.Go(func() { s.oracle.Work(ctx, verifiers, s.oracle.verify) })
	asking.Go(func() { s.churn(asks) })
	asking.Go(func() { s.askNewest(asks) })
	for range askers {
		asking.Go(func() { s.ask(asks) })
	}
	quiet = func() {
		stop()
		asking.Wait()
	}
	return quiet, func() {
		quiet()
		cancel()
		verifying.Wait()
	}
}

// touch changes an object and returns its revision.
func (s *scene) touch(ctx context.Context, k kind, namespace, name string) (uint64, error) {
	return s.write(ctx, k, http.MethodPatch, k.path(namespace)+"/"+name,
		fieldsOf{"metadata": fieldsOf{"annotations": fieldsOf{"turn": strconv.Itoa(rand.Int())}}})
}

// write writes, and notes the revision unless the object is gone with it.
func (s *scene) write(ctx context.Context, k kind, method, path string, object any) (uint64, error) {
	a, err := s.direct.Do(ctx, method, path, object)
	if err != nil || method == http.MethodDelete {
		return 0, err
	}
	var written struct{ Metadata ask.Identity }
	if err := json.Unmarshal(a.Body, &written); err != nil {
		return 0, err
	}
	revision, err := strconv.ParseUint(written.Metadata.ResourceVersion, 10, 64)
	if err == nil {
		s.ledger.Confirmed(k, revision)
	}
	return revision, err
}

// churn writes until ctx ends. What fails, fails: the API server may be away.
func (s *scene) churn(ctx context.Context) {
	for turn := 0; poll.Pause(ctx, writeEvery); turn++ {
		k := kinds[turn%len(kinds)]
		ns, name := s.namespaces[rand.IntN(len(s.namespaces))], nameOf(rand.IntN(names))
		s.writing.RLock()
		switch dice := rand.IntN(12); {
		case dice < 5:
			_, _ = s.touch(ctx, k, ns, name)
		case dice < 8:
			_, _ = s.write(ctx, k, http.MethodPost, k.path(ns), k.object(name, turn))
		default:
			_, _ = s.write(ctx, k, http.MethodDelete, k.path(ns)+"/"+name+"?gracePeriodSeconds=0", nil)
		}
		s.writing.RUnlock()
	}
}

// askNewest asks for the newest state until ctx ends. It does not wait for what is forwarded in any
// case, and so is there when an old state would be given.
func (s *scene) askNewest(ctx context.Context) {
	for poll.Pause(ctx, askEvery) {
		all := collections()
		q := question{collection: all[rand.IntN(len(all))], query: ask.AnyVersion}
		if rand.IntN(4) == 0 {
			q.query = "" // what was written meanwhile is not counted: ask does
		}
		s.put(ctx, q, !q.recent(), 0)
	}
}

// ask asks for everything until ctx ends.
func (s *scene) ask(ctx context.Context) {
	for poll.Pause(ctx, askEvery) {
		all := collections()
		q := question{collection: all[rand.IntN(len(all))]}
		if rand.IntN(2) == 0 {
			q.namespace = s.namespaces[rand.IntN(len(s.namespaces))]
		}
		s.asking.RLock()
		newest, some := s.ledger.Newest(q.kind), s.ledger.Recent()
		switch dice := rand.IntN(12); {
		case dice < 4 || some == 0 || newest == 0:
			q.query = ask.AnyVersion
			s.put(ctx, q, true, 0)
		case dice < 6:
			q.query = ask.NotOlderThan(newest)
			s.put(ctx, q, true, newest)
		case dice < 8:
			s.put(ctx, q, false, newest)
		case dice < 10:
			q.query = ask.Exactly(some)
			s.put(ctx, q, true, some)
		case q.form != asProtobuf:
			s.walk(ctx, q, some)
		}
		s.asking.RUnlock()
	}
}

// walk reads all pages, at a revision or of the newest state.
func (s *scene) walk(ctx context.Context, q question, revision uint64) {
	q.limit = pageSize
	q.query = ask.FirstPage(pageSize, ask.Exactly(revision))
	atLeast := uint64(0)
	if rand.IntN(2) == 0 {
		q.query = "limit=" + strconv.Itoa(pageSize)
		atLeast = s.ledger.Newest(q.kind)
	}
	page, ok := s.put(ctx, q, !q.recent(), atLeast)
	for ok && page.Next != "" && len(page.Objects) > 0 {
		at := page.Revision
		q.query, q.after = ask.NextPage(pageSize, page.Next), page.Objects[len(page.Objects)-1]
		page, ok = s.put(ctx, q, true, at)
		if ok && page.Revision != at {
			s.tally.wrong("%s: a page of revision %d after one of %d", q, page.Revision, at)
		}
	}
}

// put puts a question to listproxy. An answer from memory goes to the oracle.
func (s *scene) put(ctx context.Context, q question, answerable bool, atLeast uint64) (ask.List, bool) {
	return s.putAs(ctx, s.via, q, answerable, atLeast)
}

// putAs is put of another caller.
func (s *scene) putAs(ctx context.Context, via *ask.Client, q question, answerable bool, atLeast uint64) (ask.List, bool) {
	asked := time.Now()
	a, err := via.GetAs(ctx, q.form.accept, q.target())
	if ctx.Err() != nil {
		return ask.List{}, false
	}
	s.tally.heard(asked, a, err, answerable)
	if err != nil || a.Code != http.StatusOK {
		if err == nil && a.FromMemory() {
			s.tally.wrong("%s: from memory, and not a list: %s", q, a)
		}
		return ask.List{}, false
	}
	l, err := q.form.read(a.Body)
	if err != nil {
		s.tally.wrong("%s: not a list: %v: %s", q, err, a)
		return ask.List{}, false
	}
	if !a.FromMemory() {
		return l, true
	}
	if l.Revision < atLeast {
		s.tally.wrong("%s: it is of revision %d: %s", q, l.Revision, a.Source())
	}
	if q.newest() {
		behind := s.ledger.Behind(l.Revision, asked)
		s.tally.lag(behind)
		s.tally.renewed(asked, l.Revision)
		if oracle.TooOld(behind, bound) {
			s.tally.wrong("%s: it is too old: of revision %d, which the API server had left %v before it was asked for", q, l.Revision, behind)
		}
	}
	s.oracle.Add(witness{question: q, answer: a, list: l, asked: asked, answered: time.Now()})
	return l, true
}
