package faults

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// past is a record of all states from one revision on, as kube-apiserver told them before it lost them.
type past struct {
	// replaced is true where etcd was: revisions have meant other states since.
	replaced bool
	// to is the highest revision that it can have come to.
	to     uint64
	states map[kind][]state // by revision
}

// lateWrites is how many revisions kube-apiserver may make by itself, of its Lease and the like, from the record
// of a past to its end.
const lateWrites = 20

type state struct {
	revision uint64
	objects  []ask.Identity
}

// record reads the states of all revisions that askers may ask for. Nobody may write meanwhile, nor
// until the past is taken away.
func record(ctx context.Context, direct *ask.Client, from uint64, replaced bool) (*past, error) {
	p := &past{replaced: replaced, states: map[kind][]state{}}
	for _, k := range kinds {
		newest, err := read(ctx, direct, k.path(""))
		if err != nil {
			return nil, err
		}
		if from == 0 {
			from = newest.Revision
		}
		states := make([]state, newest.Revision-from+1)
		var group errgroup.Group
		group.SetLimit(4)
		for i := range states {
			group.Go(func() error {
				revision := from + uint64(i) // #nosec G115 -- an index
				l, err := read(ctx, direct, k.path("")+"?"+ask.Exactly(revision))
				states[i] = state{revision, l.Objects}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		p.states[k] = states
	}
	return p, nil
}

// read asks kube-apiserver for a list. It may be slow: only a revision that is gone is an answer, too.
func read(ctx context.Context, direct *ask.Client, target string) (l ask.List, err error) {
	err = poll.Retry(ctx, target, func() error {
		a, err := direct.GetAs(ctx, asJSON.accept, target)
		switch {
		case err != nil:
			return err
		case a.Code == http.StatusGone:
			return poll.Wrong(a.String())
		case a.Code != http.StatusOK:
			return errors.New(a.String())
		}
		l, err = asJSON.read(a.Body)
		return err
	})
	return l, err
}

// has says whether an answer was true then.
func (p *past) has(w witness) bool {
	states := p.states[w.question.kind]
	i, found := slices.BinarySearchFunc(states, w.list.Revision, func(s state, r uint64) int { return cmp.Compare(s.revision, r) })
	if !found {
		// None of the kind was written after the last state. Older ones are not known.
		if i == 0 || i < len(states) || w.list.Revision > p.to {
			return false
		}
		i--
	}
	want, more := w.question.choose(states[i].objects)
	return slices.Equal(want, w.list.Objects) && more == (w.list.Next != "")
}

// choose returns what a list holds of all objects, and whether more follow.
func (q question) choose(all []ask.Identity) (chosen []ask.Identity, more bool) {
	first := q.after == (ask.Identity{})
	key := func(o ask.Identity) string { return o.Namespace + "/" + o.Name }
	for _, o := range all {
		switch {
		case q.namespace != "" && o.Namespace != q.namespace:
		case q.generation != "" && o.Namespace != q.generation:
		// Until listproxy has heard of a replaced past, a walk that began in the new one may go on in the old one
		// (docs/reliability.md): a token says after which key.
		case !first && key(o) <= key(q.after):
		case q.limit > 0 && len(chosen) == q.limit:
			return chosen, true
		default:
			chosen = append(chosen, o)
		}
	}
	return chosen, false
}
