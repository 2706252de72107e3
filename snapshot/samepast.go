package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// wholePage is how many objects a page of a whole comparison has at most, and wholePageBytes
	// about how many bytes: their metadata is a part of that. For every page, kube-apiserver 1.36
	// walks all objects that come after it.
	wholePage      = 5000
	wholePageBytes = 32 << 20
)

// recognise opens a watch that goes on from the live span, and returns it once the upstream has
// shown that it has the past that is known here. There are two ways to show that:
//
//   - A watch from one revision before the newest event that is no deletion begins with that event,
//     with the same bytes (resumepoint.go). It costs next to nothing, but kube-apiserver remembers only
//     changes since its start, and of a busy resource only the last ones. It proves the past up to that
//     change; what the watch tells next proves the rest of the span (Collection.confirmed).
//   - Where it has forgotten that event (410), or many deletions followed it, or nothing has changed
//     since the load: the names and revisions of all objects at exactly the span's end are the same, and
//     so are the bytes of the newest one. If the newest change is a deletion, the deleted object must
//     have been the same at the revision before. This proves the state, but not its history: another
//     past may have created and deleted objects without a trace. So the history stays only if none of
//     the API servers was restarted, since Kubernetes' procedure for restoring etcd stops all API
//     servers first.
//
// errUnproven says that the upstream has another past, or has forgotten this one.
func (f *feed) recognise(ctx context.Context) (*stream, error) {
	timeout := watchTimeout + rand.N(watchTimeout)
	if first := f.collection.resumePoint(); first.object != nil {
		s, err := f.goOn(ctx, first.object.Revision-1, timeout)
		if err == nil {
			if err = f.meet(ctx, s, first.object); err == nil {
				f.collection.confirm(first.object.Revision)
				return s, nil
			}
			s.Stop()
		}
		if !source.Answered(err, http.StatusGone) {
			return nil, err
		}
	}
	// The watch begins before the comparison: if the storage is replaced between the two, the
	// comparison sees it.
	s, gone := f.goOn(ctx, f.collection.view.Load().to(), timeout)
	if gone != nil && !source.Answered(gone, http.StatusGone) {
		return nil, gone
	}
	err := f.compareAll(ctx)
	if err == nil && gone == nil {
		f.collection.confirm(f.collection.view.Load().to())
		f.log.Info("watch resumed, the upstream has the same objects at the same revisions")
		return s, nil
	}
	if s != nil {
		s.Stop()
	}
	switch {
	case err == nil:
		return nil, gone // only the changes after the span are forgotten: the span itself is still true
	case source.Answered(err, http.StatusGone), isMismatch(err), errors.Is(err, wire.ErrForm):
		return nil, fmt.Errorf("%w: %w", errUnproven, err)
	}
	return nil, err
}

// compareAll compares the state at the live span's end with the upstream's. It forgets the history
// before that, unless the API servers are the same as before, both before the comparison and after
// it (its turn may take minutes to come). Only a few feeds compare at the same time.
func (f *feed) compareAll(ctx context.Context) error {
	same, err := f.same(ctx)
	if err != nil {
		return err
	}
	select {
	case f.comparisons <- struct{}{}:
		defer func() { <-f.comparisons }()
	case <-ctx.Done():
		return ctx.Err()
	}
	v := f.collection.view.Load()
	if v.absence != reason.None { // it was given up meanwhile
		return absenceError{v.absence}
	}
	s := v.stateAt(v.to())
	c := &comparison{source: f.source, insists: true}
	for from, more := "", true; more; more = from != "" {
		if from, err = c.names(ctx, s, from, wholePage, wholePageBytes); err != nil {
			return err
		}
	}
	rev, deleted := v.deleted(f.collection.resumePoint())
	// If etcd was compacted since, nothing is wrong. (The bound on history may be longer than that
	// takes.)
	if err = c.object(ctx, rev, deleted); err != nil && !source.Answered(err, http.StatusGone) {
		return err
	}
	err = c.object(ctx, v.to(), newestObject(v.newest))
	if err == nil && same {
		same, err = f.same(ctx)
	}
	if err != nil {
		return err
	}
	if !same {
		f.log.Info("the history is dropped: nobody knows whether the API servers are the ones from before", "revision", v.to())
		f.collection.forgetPast()
	}
	return nil
}

// same asks whether the API servers are the ones from before.
func (f *feed) same(ctx context.Context) (bool, error) {
	if f.sameServers == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	return f.sameServers(ctx)
}

// doubtPast drops closed spans if etcd may have been restored since they were closed. That is so if
// the new state was asked for too long after that, and nothing shows that the API servers are still
// the same.
// If every object was changed since, the new state itself would not show a restore.
func (f *feed) doubtPast(ctx context.Context, asked time.Time) {
	closed := f.collection.closedSince()
	if closed.IsZero() || !clock.InDoubt(closed, asked) {
		return
	}
	if same, err := f.same(ctx); err != nil || !same {
		f.log.Info("the history is dropped: nobody knows whether the API servers are the ones from before", "error", err)
		f.collection.drop(reason.Warming)
	}
}

// newestObject returns the object of a state that was changed last; nil if the state is empty.
func newestObject(state index.Tree) (newest *index.Object) {
	state.Ascend("", "", func(o *index.Object) bool {
		if newest == nil || o.Revision > newest.Revision {
			newest = o
		}
		return true
	})
	return newest
}

// deleted returns the object whose deletion is the newest change, and the revision before that. It is
// nil if the newest change is no deletion, or one that is older than the history.
func (v *View) deleted(last resumePoint) (uint64, *index.Object) {
	n := len(last.deletions)
	if n == 0 {
		return 0, nil
	}
	before, absence := v.exact(last.deletions[n-1].revision - 1)
	if absence != reason.None {
		return 0, nil
	}
	o, _ := before.tree.Get(last.deletions[n-1].key)
	return before.Revision, o
}

// object compares one object at a revision, byte by byte; a nil object counts as equal.
func (c *comparison) object(ctx context.Context, rev uint64, o *index.Object) error {
	if o == nil {
		return nil
	}
	namespace, name := index.SplitKey(o.Key)
	query := source.Exactly(rev)
	query.Set("fieldSelector", source.Named(name))
	theirs, err := c.read(ctx, c.source, namespace, rev, query)
	if err != nil {
		return err
	}
	if len(theirs.Items) != 1 || !bytes.Equal(theirs.Items[0], o.Bytes) {
		return &mismatchError{differences: []string{o.Key + " has other bytes"}}
	}
	return nil
}
