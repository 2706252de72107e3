package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// ListState is listproxy's state of a collection at one revision. ComparePage compares it with the upstream's.
type ListState struct {
	// Revision is the resourceVersion of the state.
	Revision uint64
	// Envelope writes lists of the collection as the upstream does: all bytes around the objects.
	Envelope *wire.Envelope
	// Tree has the objects.
	Tree index.Tree
}

// MismatchError says that a state differs from the upstream's state at the same revision.
type MismatchError struct {
	// Difference describes the first difference. It may name an object, but has none of the object's content.
	Difference string
	// SameObjects reports whether both states have the same objects at the same revisions, and differ only in bytes or
	// headers.
	SameObjects bool
}

// Error implements [error].
func (e *MismatchError) Error() string { return e.Difference }

// IsMismatch reports whether err says that a state differs from the upstream's.
func IsMismatch(err error) bool {
	_, ok := errors.AsType[*MismatchError](err)
	return ok
}

// ComparePage reads one page of a list from the upstream, and compares it with the same page of a state. It compares the
// objects, the bytes around them, the number of objects that follow, and the headers. If the pages differ, the error is a
// [MismatchError].
//
// The page is at the state's revision, begins with the key start, and has at most limit objects. list sends the request. next
// is the key with which the state's next page begins; "" after the last page. It is valid even if there is an error.
func (s *Source) ComparePage(
	ctx context.Context, list listFunc, state ListState, start string, limit int64,
) (next string, err error) {
	ours := state.Tree.Page(state.Envelope, index.Query{Start: start, Limit: limit}, nil)
	query := s.PageQuery(state.Revision, start, limit)
	if state.Envelope.Sharded { // The upstream must repeat the selector in the list. If it does not, the pages differ.
		query.Set("shardSelector", wire.AllShards)
	}
	theirs, err := list(ctx, "", query)
	if err == nil {
		err = s.compare(ctx, state, start, ours, theirs)
	}
	return ours.Next, err
}

// listFunc reads a list from the upstream: [Source.List] or [Source.ListRetrying].
type listFunc func(ctx context.Context, namespace string, query url.Values) (ListResponse, error)

// compare compares ours, the page of a state that begins with the key start, with theirs, the upstream's page.
func (s *Source) compare(ctx context.Context, state ListState, start string, ours index.Page, theirs ListResponse) error {
	if theirs.Meta.Revision != state.Revision {
		return wire.Inconsistent("a list at revision %d that was asked for at %d", theirs.Meta.Revision, state.Revision)
	}
	headers, err := s.Headers(ctx, theirs)
	if err != nil {
		return err
	}
	objectDiff, byteDiff := s.compareObjects(ours.Objects, theirs.Items)
	countsAgree := ours.Remaining == theirs.Meta.Remaining || state.isUncounted(theirs)
	// Differences in objects and counts come first: they show that the state is wrong. The others concern only how it is
	// written.
	switch {
	case objectDiff != nil:
		return objectDiff
	case !countsAgree: // Some objects after this page are missing, here or upstream.
		return &MismatchError{
			Difference: fmt.Sprintf("the page from %q on has %d objects after it, upstream %d", start, ours.Remaining, theirs.Meta.Remaining),
		}
	case byteDiff != nil:
		return byteDiff
	case !state.isWrittenAs(ours, theirs, headers):
		return &MismatchError{
			Difference:  fmt.Sprintf("the page from %q on has other bytes around its objects, or other headers", start),
			SameObjects: true,
		}
	}
	return nil
}

// compareObjects compares the objects of a page with the upstream's items. It returns at most one difference:
//
//   - objectDiff is the first difference in names or revisions.
//   - byteDiff is the first difference in bytes, if there is no objectDiff.
func (s *Source) compareObjects(objects []*index.Object, items [][]byte) (objectDiff, byteDiff *MismatchError) {
	for i, item := range items {
		m, err := s.Encoding().ParseItem(item)
		if err != nil {
			return &MismatchError{Difference: fmt.Sprintf("object %d of a page cannot be read upstream", i+1)}, nil
		}
		// Both sides are sorted by key and agree up to here. So if the two keys differ, the lower one is missing on the other
		// side.
		key := index.JoinKey(m.Namespace, m.Name)
		if i == len(objects) || key < objects[i].Key {
			return &MismatchError{Difference: key + " is upstream, but not here"}, nil
		}
		o := objects[i]
		switch {
		case key > o.Key:
			return &MismatchError{Difference: o.Key + " is here, but not upstream"}, nil
		case m.Revision != o.Revision:
			return &MismatchError{Difference: fmt.Sprintf("%s is of revision %d, upstream of %d", key, o.Revision, m.Revision)}, nil
		case byteDiff == nil && !bytes.Equal(o.Bytes, item):
			byteDiff = &MismatchError{Difference: key + " has other bytes", SameObjects: true}
		}
	}
	if len(objects) > len(items) {
		return &MismatchError{Difference: objects[len(items)].Key + " is here, but not upstream"}, nil
	}
	return nil, byteDiff
}

// isUncounted reports whether the upstream may have left the objects that follow its page uncounted. With a shard selector,
// Kubernetes 1.37 does not count them, and 1.36 does.
func (s ListState) isUncounted(theirs ListResponse) bool {
	return s.Envelope.Sharded && theirs.Meta.Remaining == 0
}

// isWrittenAs reports whether listproxy would write a page of the state with the same bytes, content type and headers as
// theirs, the upstream's page. headers are the headers of theirs that every caller gets. The objects of both pages must have
// the same bytes.
func (s ListState) isWrittenAs(page index.Page, theirs ListResponse, headers http.Header) bool {
	meta := wire.ListMeta{Revision: s.Revision}
	if !s.isUncounted(theirs) {
		meta.Remaining = page.Remaining
	}
	if s.Envelope.Sharded {
		meta.Shards = wire.AllShards
	}
	if page.Next != "" { // Tokens are not compared: this package does not know how they are encoded.
		meta.Continue = theirs.Meta.Continue
	}
	sameBytes := bytes.Equal(s.Envelope.Render(meta, theirs.Items), theirs.Body)
	sameType := s.Envelope.ContentType == theirs.Header.Get("Content-Type")
	return sameBytes && sameType && maps.EqualFunc(s.Envelope.Headers, headers, slices.Equal)
}
