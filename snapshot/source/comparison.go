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
	"strings"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Comparison compares states with the upstream's at the same revision. It is for one goroutine.
type Comparison struct {
	Source Source
	// Insists reports whether lists that the upstream is too busy for are asked for again.
	Insists bool
	// noProtobuf reports whether the upstream has said that it gives metadata as JSON only.
	noProtobuf bool
}

// ListState is a state that is compared: the objects of a list at one revision.
type ListState struct {
	Revision uint64
	Envelope *wire.Envelope
	Tree     index.Tree
}

// MismatchError is a difference between a state and the upstream's. It names objects, and has
// nothing of what they hold.
type MismatchError struct {
	Differences []string
	// SameObjects reports whether both have the same objects at the same revisions, and only bytes differ.
	SameObjects bool
	// Again repeats the comparison of the page that differed.
	Again func(context.Context) error
}

// Error implements [error].
func (e *MismatchError) Error() string { return strings.Join(e.Differences, "; ") }

// IsMismatch reports whether err says that a state differs from the upstream's.
func IsMismatch(err error) bool {
	_, ok := errors.AsType[*MismatchError](err)
	return ok
}

// minNames is the least number of objects whose names are asked for at once, even if the objects
// are large: metadata is a small part of a large object, and for every page kube-apiserver 1.36
// walks all objects that come after it.
const minNames = 20

// Names compares the names and revisions of the objects on the page that begins with the key from. The page has atMost
// objects, or objects of about atMostBytes. It returns the key with which the next page begins, even if the upstream
// failed. After a mismatch that is this page, which must be compared again.
func (c *Comparison) Names(
	ctx context.Context, s ListState, from string, atMost, atMostBytes int64,
) (next string, err error) {
	limit := max(minNames, s.Tree.PageLimit(from, atMost, atMostBytes))
	theirs, next, err := c.readNames(ctx, c.Source.PageAt(s.Revision, from, limit), s.Revision)
	if err != nil {
		return s.Tree.Page(s.Envelope, index.Query{Start: from, Limit: limit}, nil).Next, err
	}
	if found := s.Tree.Differences(from, next, theirs); len(found) > 0 {
		return from, &MismatchError{Differences: found, Again: func(ctx context.Context) error {
			_, err := c.Names(ctx, s, from, atMost, atMostBytes)
			return err
		}}
	}
	return next, nil
}

// readNames reads the revisions of a page's objects, by key, and returns the key with which the next page begins. It
// asks for metadata: as protobuf, which is the cheapest, or as JSON if the upstream has no protobuf.
func (c *Comparison) readNames(
	ctx context.Context, query url.Values, revision uint64,
) (found map[string]uint64, next string, err error) {
	src := c.Source
	src.Resource.Representation = media.MetadataProtobuf
	if c.noProtobuf {
		src.Resource.Representation = media.MetadataJSON
	}
	page, err := c.read(ctx, src, revision, query)
	if !c.noProtobuf && Answered(err, http.StatusNotAcceptable) {
		c.noProtobuf = true
		return c.readNames(ctx, query, revision)
	}
	if err != nil {
		return nil, "", err
	}
	found = make(map[string]uint64, len(page.Items))
	last := ""
	for _, item := range page.Items {
		m, err := src.Encoding().Item(item)
		if err == nil && m.Name == "" {
			err = errors.New("it has no name")
		}
		if err != nil {
			return nil, "", fmt.Errorf("%w: an object's metadata: %w", wire.ErrForm, err)
		}
		last = index.JoinKey(m.Namespace, m.Name)
		found[last] = m.Revision
	}
	switch {
	case page.Meta.Continue == "":
		return found, "", nil
	case last == "":
		return nil, "", fmt.Errorf("%w: an empty page that is not the last one", wire.ErrForm)
	}
	return found, last + "\x00", nil
}

// Page compares the bytes of the page that begins with the key from: the objects, the envelope, the count and the
// headers.
func (c *Comparison) Page(ctx context.Context, s ListState, from string, limit int64) error {
	query := c.Source.PageAt(s.Revision, from, limit)
	if s.Envelope.Sharded { // an API server that does not know shards any more is noticed
		query.Set("shardSelector", wire.AllShards)
	}
	theirs, err := c.read(ctx, c.Source, s.Revision, query)
	if err != nil {
		return err
	}
	headers, err := c.Source.Headers(ctx, theirs)
	if err != nil {
		return err
	}
	ours := s.Tree.Page(s.Envelope, index.Query{Start: from, Limit: limit}, nil)
	if s.hasBytes(ours, theirs, headers) {
		return nil
	}
	sameCount := ours.Remaining == theirs.Meta.Remaining || s.isUncounted(theirs)
	return &MismatchError{
		Differences: index.DifferentBytes(ours.Objects, theirs.Items),
		SameObjects: sameCount && c.sameObjects(ours.Objects, theirs.Items),
		Again:       func(ctx context.Context) error { return c.Page(ctx, s, from, limit) },
	}
}

// sameObjects reports whether items are these objects, at the same revisions.
func (c *Comparison) sameObjects(objects []*index.Object, items [][]byte) bool {
	return slices.EqualFunc(objects, items, func(o *index.Object, item []byte) bool {
		m, err := c.Source.Encoding().Item(item)
		return err == nil && index.JoinKey(m.Namespace, m.Name) == o.Key && m.Revision == o.Revision
	})
}

// read reads a list that the upstream must answer at exactly the given revision.
func (c *Comparison) read(ctx context.Context, src Source, revision uint64, query url.Values) (List, error) {
	list := src.List
	if c.Insists {
		list = src.Insist
	}
	l, err := list(ctx, "", query)
	if err == nil && l.Meta.Revision != revision {
		err = wire.Inconsistent("a list at revision %d that was asked for at %d", l.Meta.Revision, revision)
	}
	return l, err
}

// isUncounted reports whether the upstream did not count what remains after a page, as 1.37 does not if it is asked for
// shards.
func (s ListState) isUncounted(theirs List) bool {
	return s.Envelope.Sharded && !theirs.Meta.HasRemaining
}

// hasBytes reports whether a page of s, written as a list, has the bytes of the upstream's list, and these headers.
func (s ListState) hasBytes(page index.Page, theirs List, headers http.Header) bool {
	meta := wire.ListMeta{Revision: s.Revision, Remaining: page.Remaining, HasRemaining: page.Counted && !s.isUncounted(theirs)}
	if s.Envelope.Sharded {
		meta.Shards = wire.AllShards
	}
	if page.Next != "" {
		// Continue tokens are not compared: upstreams write them in two ways, which this package does not know.
		meta.Continue = theirs.Meta.Continue
	}
	var items [][]byte
	for _, o := range page.Objects {
		items = append(items, o.Bytes)
	}
	return bytes.Equal(s.Envelope.Render(meta, items), theirs.Body) &&
		s.Envelope.ContentType == theirs.Header.Get("Content-Type") && maps.EqualFunc(s.Envelope.Headers, headers, slices.Equal)
}
