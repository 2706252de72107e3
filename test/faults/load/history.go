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

// LostHistory is a record of states that kube-apiserver is about to lose, because etcd is compacted or replaced. The record is
// made just before.
//
// Say the record has the revisions 100 to 140 of pods, and maxRevision is 160. Then the pods at revision 120 are known, and
// those at 150 are the same as at 140, since nobody writes pods after the record. Nothing is known of revision 90, and 170 is
// not of this history.
type LostHistory struct {
	// etcdReplaced means that etcd was replaced: the new one gives the same revisions to other states.
	etcdReplaced bool
	// maxRevision is the highest revision that the history can have reached.
	maxRevision uint64
	states      map[kinds.Kind][]state // in the order of revisions, without gaps
}

// maxLateWrites is the number of revisions that are added to the record for writes by kube-apiserver itself, for example of its
// Lease, between the record and the end of the history.
const maxLateWrites = 20

// state is the objects of a kind at a revision.
type state struct {
	revision uint64
	objects  []ask.Identity
}

// RecordHistory reads the state of each kind at every revision since from. If from is 0, it reads only the newest state. Nobody
// may write objects of these kinds between this call and the loss of the history. etcdRevision returns etcd's current revision.
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
		first := from
		if from == 0 {
			first = newest.Revision
		}
		states := make([]state, newest.Revision-first+1)
		var reads errgroup.Group
		reads.SetLimit(4)
		for i := range states {
			reads.Go(func() error {
				revision := first + uint64(i) // #nosec G115 -- an index
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

// contains reports whether a hit is what this history had at the hit's revision.
func (h *LostHistory) contains(hit Hit) bool {
	objects, ok := h.objectsAt(hit.Question.Kind, hit.List.Revision)
	if !ok {
		return false
	}
	want, wantMore := hit.Question.selectPage(objects)
	hasMore := hit.List.Next != ""
	return slices.Equal(want, hit.List.Objects) && hasMore == wantMore
}

// objectsAt returns the objects of a kind at a revision. ok is false if the record does not tell them.
func (h *LostHistory) objectsAt(kind kinds.Kind, revision uint64) (objects []ask.Identity, ok bool) {
	states := h.states[kind]
	i, isRecorded := slices.BinarySearchFunc(states, revision, func(s state, revision uint64) int {
		return cmp.Compare(s.revision, revision)
	})
	isAfterRecord := len(states) > 0 && i == len(states)
	switch {
	case isRecorded:
		return states[i].objects, true
	case isAfterRecord && revision <= h.maxRevision:
		return states[len(states)-1].objects, true // nobody wrote objects of this kind after the record
	}
	return nil, false
}
