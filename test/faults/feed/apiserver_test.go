package feed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// witness remembers answers, to be held against the API server once it can be asked.
type witness struct {
	path string
	q    url.Values
	ask.Answer
}

// Killing and restarting the API server under load never yields a wrong answer.
func TestKilledAPIServer(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	kinds := []kind{configMaps, widgets}
	r := newRig(t, ownCluster(t), rigOptions{})
	ns := r.namespace(t, "killed")
	for _, k := range kinds {
		for i := range 20 {
			r.create(t, k, ns, fmt.Sprintf("object-%d", i))
		}
		r.await(hitAny, k.Path(ns), anyVersion())
	}

	ctx, cancel := context.WithCancel(t.Context())
	var work, verifiers sync.WaitGroup
	var hits atomic.Int64
	answers := make(chan witness, 1<<16)
	for range 2 {
		verifiers.Go(func() {
			for a := range answers {
				what := fmt.Sprintf("%s?%s to be compared", a.path, a.q.Encode())
				if err := poll.Retry(t.Context(), what, func() error { return r.verify(t.Context(), a.path, a.q, a.Answer) }); err != nil {
					t.Error(err)
					return
				}
				if a.Source() == hitAny || a.Source() == hitExact || a.Source() == hitContinue {
					hits.Add(1)
				}
			}
		})
	}
	defer verifiers.Wait()
	defer close(answers)
	defer work.Wait()
	defer cancel()
	for _, k := range kinds {
		work.Go(func() { r.churn(ctx, k, ns) })
		work.Go(func() { r.wander(ctx, k.Path(ns), answers) })
		work.Go(func() { r.wander(ctx, k.Path(""), answers) })
	}
	for range 2 {
		expect.NoError(t, r.KillAPIServer())
		expect.NoError(t, r.StartAPIServer(t.Context()))
		// What is written now is soon in the answers from memory again.
		for _, k := range kinds {
			revision := ""
			r.until("a write", func() error {
				a, err := r.direct.Do(t.Context(), http.MethodPatch, k.Path(ns)+"/object-0",
					fieldsOf{"metadata": fieldsOf{"annotations": fieldsOf{"restarted": "yes"}}})
				revision = a.Meta().ResourceVersion
				return err
			})
			r.await(hitNotOlderThan, k.Path(ns), notOlderThan(revision))
		}
	}
	r.until("answers from memory, which show something", func() error {
		if n := hits.Load(); n < 100 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
}

// churn changes, creates and deletes objects, and does not mind a server that is away.
func (r *rig) churn(ctx context.Context, k kind, ns string) {
	for i := 0; ctx.Err() == nil; i++ {
		object := k.Path(ns) + "/object-" + strconv.Itoa(i%20)
		var err error
		switch i % 5 {
		case 3:
			_, err = r.direct.Do(ctx, http.MethodDelete, object, nil)
		case 4:
			_, err = r.direct.Do(ctx, http.MethodPost, k.Path(ns), k.Object("extra-"+strconv.Itoa(i)))
		default:
			_, err = r.direct.Do(ctx, http.MethodPatch, object,
				kinds.Touch(strconv.Itoa(i)))
		}
		if err != nil {
			poll.Pause(ctx, pollEvery)
		}
	}
}

// wander asks for the newest state, and walks through it page by page.
func (r *rig) wander(ctx context.Context, list string, answers chan<- witness) {
	look := func(q url.Values) ask.Meta {
		a, err := r.admin.Get(ctx, list+"?"+q.Encode())
		if err != nil && ctx.Err() == nil && errors.As(r.brokeOff(list, q, a, err), new(poll.Wrong)) {
			r.t.Errorf("%s?%s broke off: %v", list, q.Encode(), err)
		}
		if err != nil || a.Code != http.StatusOK {
			poll.Pause(ctx, pollEvery)
			return ask.Meta{}
		}
		select {
		case answers <- witness{list, q, a}:
		case <-ctx.Done():
		}
		return a.Meta()
	}
	for ctx.Err() == nil {
		revision := look(anyVersion()).ResourceVersion
		if revision == "" {
			continue
		}
		look(exactly(revision))
		for next := look(firstPage(revision)).Continue; next != ""; {
			next = look(query("limit=7", "continue="+next)).Continue
		}
		poll.Pause(ctx, pollEvery)
	}
}

// Compacting etcd in the middle of a walk: the walk goes on at its revision, from memory or
// not, or the upstream's 410 ends it.
func TestCompactedWalks(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	k := configMaps
	r := newRig(t, ownCluster(t), rigOptions{})
	ns := r.namespace(t, "compacted")
	list := k.Path(ns)
	for i := range 12 {
		r.create(t, k, ns, fmt.Sprintf("object-%02d", i))
	}
	// One walk begins at a revision that listproxy has never known, one at one that it knows.
	unknown := r.touch(t, k, ns, "object-00", "early")
	r.touch(t, k, ns, "object-11", "early")
	r.await(hitAny, list, anyVersion())
	known := r.touch(t, k, ns, "object-01", "late")
	r.await(hitNotOlderThan, list, notOlderThan(known))
	walks := []struct {
		revision string
		first    string // where its first page comes from
		expired  bool
		want     []string
	}{
		{revision: unknown, first: fwdHistory, expired: true},
		{revision: known, first: hitExact},
	}
	// Read before anything is compacted, page by page as the walks will.
	for i := range walks {
		var err error
		if walks[i].want, err = r.pages(r.direct, list, walks[i].revision, func() {}); err != nil {
			t.Fatal(err)
		}
		r.expect(walks[i].first, list, firstPage(walks[i].revision))
	}
	for _, walk := range walks {
		compacted := false
		got, err := r.pages(r.admin, list, walk.revision, func() {
			if !compacted {
				compacted = true
				r.compact(t, k, ns)
			}
		})
		// What listproxy knew it gives up as soon as it hears of the restart: the upstream has
		// forgotten what would prove that it is still the same. Until then it may answer.
		if walk.expired && err == nil {
			t.Fatalf("the walk at %s goes on, though nobody knows that revision", walk.revision)
		}
		if err == nil && len(got) != len(walk.want) {
			t.Errorf("%d pages at %s, not %d", len(got), walk.revision, len(walk.want))
		}
		if diff := cmp.Diff(walk.want[:len(got)], got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the pages at %s differ (-want +got):\n%s", walk.revision, diff)
		}
		later := r.touch(t, k, ns, "object-06", "after "+walk.revision)
		r.await(hitNotOlderThan, list, notOlderThan(later))
	}
}

// compact makes etcd and the API server forget all but the newest state.
func (r *rig) compact(t *testing.T, k kind, ns string) {
	t.Helper()
	r.touch(t, k, ns, "object-05", "before the compaction")
	expect.NoError(t, r.CompactEtcd(t.Context()))
	// Only a restart makes it certain that the API server has forgotten, too.
	expect.NoError(t, r.KillAPIServer())
	expect.NoError(t, r.StartAPIServer(t.Context()))
}

// pages reads all pages at a revision and calls between after each. An answer of 410 is an
// error; others are asked for again.
func (r *rig) pages(from *ask.Client, list, revision string, between func()) (pages []string, err error) {
	q := firstPage(revision)
	for {
		var a ask.Answer
		err := poll.Retry(r.t.Context(), "a page", func() (err error) {
			if a, err = from.Get(r.t.Context(), list+"?"+q.Encode()); err != nil {
				return err
			}
			switch a.Code {
			case http.StatusOK:
				return nil
			case http.StatusGone:
				return poll.Wrong(a.String())
			}
			return fmt.Errorf("%s", a)
		})
		if err != nil {
			return pages, err
		}
		pages = append(pages, plain(a.Body))
		if a.Meta().Continue == "" {
			return pages, nil
		}
		q = query("limit=2", "continue="+a.Meta().Continue)
		between()
	}
}
