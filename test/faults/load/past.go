package load

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// Past is a record of all states from one revision on, as kube-apiserver told them before it lost
// them.
type Past struct {
	// replaced is true where etcd was: revisions have meant other states since.
	replaced bool
	// to is the highest revision that it can have come to.
	to     uint64
	states map[kinds.Kind][]state // by revision
}

// lateWrites is how many revisions kube-apiserver may make by itself, of its Lease and the like,
// from the record of a past to its end.
const lateWrites = 20

type state struct {
	revision uint64
	objects  []ask.Identity
}

// Record reads the states of all revisions that askers may ask for. Nobody may write meanwhile, nor
// until the past is taken away, in which etcd is at a revision that now tells.
func Record(
	ctx context.Context, direct *ask.Client, of []kinds.Kind, from uint64, replaced bool, now func(context.Context) (int64, error),
) (*Past, error) {
	p := &Past{replaced: replaced, states: map[kinds.Kind][]state{}}
	for _, k := range of {
		newest, err := Read(ctx, direct, k.Path(""))
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
				l, err := Read(ctx, direct, k.Path("")+"?"+ask.Exactly(revision))
				states[i] = state{revision, l.Objects}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		p.states[k] = states
	}
	at, err := now(ctx)
	p.to = uint64(at) + lateWrites // #nosec G115 -- a revision
	return p, err
}

// Read asks kube-apiserver for a list. It may be slow: only a revision that is gone is an answer,
// too.
func Read(ctx context.Context, direct *ask.Client, target string) (l ask.List, err error) {
	err = poll.Retry(ctx, target, func() error {
		a, err := direct.Do(ctx, http.MethodGet, target, nil)
		switch {
		case a.Code == http.StatusGone:
			return poll.Wrong(a.String())
		case err != nil:
			return err
		}
		l, err = ask.ReadList(a.Body)
		return err
	})
	return l, err
}

// has says whether an answer was true then.
func (p *Past) has(w Witness) bool {
	states := p.states[w.Question.Kind]
	i, found := slices.BinarySearchFunc(states, w.List.Revision, func(s state, r uint64) int { return cmp.Compare(s.revision, r) })
	if !found {
		// None of the kind was written after the last state. Older ones are not known.
		if i == 0 || i < len(states) || w.List.Revision > p.to {
			return false
		}
		i--
	}
	want, more := w.Question.choose(states[i].objects)
	return slices.Equal(want, w.List.Objects) && more == (w.List.Next != "")
}
