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

// LostHistory is a record of states, made just before kube-apiserver loses them: to a compaction of etcd, or because
// etcd is replaced.
type LostHistory struct {
	// etcdReplaced means that etcd was replaced: the new one gives the same revisions to other states.
	etcdReplaced bool
	// maxRevision is the highest revision that the history can have reached.
	maxRevision uint64
	states      map[kinds.Kind][]state // by revision, in order and without gaps
}

// maxLateWrites is the number of revisions that kube-apiserver may write by itself (its Lease and the like) between the record and
// the end of the history.
const maxLateWrites = 20

type state struct {
	revision uint64
	objects  []ask.Identity
}

// RecordHistory reads the state of each kind at every revision since from, or only the newest state if from is 0. Nobody may
// write objects of these kinds from now until the history is lost. etcdRevision returns etcd's current revision.
func RecordHistory(
	ctx context.Context, direct *ask.Client, all []kinds.Kind, from uint64, etcdReplaced bool,
	etcdRevision func(context.Context) (int64, error),
) (*LostHistory, error) {
	h := &LostHistory{etcdReplaced: etcdReplaced, states: map[kinds.Kind][]state{}}
	for _, kind := range all {
		newest, err := Read(ctx, direct, kind.Path(""))
		if err != nil {
			return nil, err
		}
		if from == 0 {
			from = newest.Revision
		}
		states := make([]state, newest.Revision-from+1)
		var reads errgroup.Group
		reads.SetLimit(4)
		for i := range states {
			reads.Go(func() error {
				revision := from + uint64(i) // #nosec G115 -- an index
				list, err := Read(ctx, direct, kind.Path("")+"?"+ask.Exactly(revision))
				states[i] = state{revision: revision, objects: list.Objects}
				return err
			})
		}
		if err := reads.Wait(); err != nil {
			return nil, err
		}
		h.states[kind] = states
	}
	current, err := etcdRevision(ctx)
	h.maxRevision = uint64(current) + maxLateWrites // #nosec G115 -- a revision
	return h, err
}

// Read reads a list from kube-apiserver. It tries again after each error but 410: a revision that is gone does not come back.
func Read(ctx context.Context, direct *ask.Client, target string) (list ask.List, err error) {
	err = poll.Retry(ctx, target, func() error {
		a, err := direct.Do(ctx, http.MethodGet, target, nil)
		switch {
		case a.Code == http.StatusGone:
			return poll.Wrong(a.String())
		case err != nil:
			return err
		}
		list, err = ask.ReadList(a.Body)
		return err
	})
	return list, err
}

// contains reports whether an answer was true in this history.
func (h *LostHistory) contains(hit Hit) bool {
	states := h.states[hit.Question.Kind]
	i, isRecorded := slices.BinarySearchFunc(states, hit.List.Revision, func(s state, revision uint64) int {
		return cmp.Compare(s.revision, revision)
	})
	if !isRecorded {
		// Revisions before the record are unknown. After the record nobody wrote objects of this kind, so its last state
		// holds until the end of the history.
		isAfterRecord := len(states) > 0 && i == len(states)
		if !isAfterRecord || hit.List.Revision > h.maxRevision {
			return false
		}
		i = len(states) - 1
	}
	want, wantMore := hit.Question.selectPage(states[i].objects)
	hasMore := hit.List.Next != ""
	return slices.Equal(want, hit.List.Objects) && hasMore == wantMore
}
