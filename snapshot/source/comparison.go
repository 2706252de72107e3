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

// Comparison compares states with the upstream's at the same revision.
type Comparison struct {
	Source Source
	// Insists reports whether to use [Source.Insist], which tries again if the upstream is too busy.
	Insists bool
}

// ListState has the objects of a collection at one revision, and how the upstream writes them as a list.
type ListState struct {
	Revision uint64
	Envelope *wire.Envelope
	Tree     index.Tree
}

// MismatchError is a difference between a state and the upstream's.
type MismatchError struct {
	// Difference describes the first difference. It may name an object, but has none of the object's content.
	Difference string
	// SameObjects reports whether both have the same objects at the same revisions, and only bytes differ.
	SameObjects bool
}

// Error implements [error].
func (e *MismatchError) Error() string { return e.Difference }

// IsMismatch reports whether err says that a state differs from the upstream's.
func IsMismatch(err error) bool {
	_, ok := errors.AsType[*MismatchError](err)
	return ok
}

// Page compares the page of s that begins with the key start: its objects, the bytes around them, the count of the objects
// that follow, and the headers. It returns a [MismatchError] if they differ. next is the key with which the next page of s
// begins, also after an error; it is empty after the last page.
func (c *Comparison) Page(ctx context.Context, s ListState, start string, limit int64) (next string, err error) {
	ours := s.Tree.Page(s.Envelope, index.Query{Start: start, Limit: limit}, nil)
	query := c.Source.PageAt(s.Revision, start, limit)
	if s.Envelope.Sharded { // so that an API server that does not know shards any more is noticed
		query.Set("shardSelector", wire.AllShards)
	}
	theirs, err := c.read(ctx, s.Revision, query)
	if err != nil {
		return ours.Next, err
	}
	headers, err := c.Source.Headers(ctx, theirs)
	if err != nil {
		return ours.Next, err
	}
	difference, sameObjects := c.difference(ours.Objects, theirs.Items)
	sameCount := ours.Remaining == theirs.Meta.Remaining || s.isUncounted(theirs)
	switch {
	case difference == "" && s.hasBytes(ours, theirs, headers):
		return ours.Next, nil
	case sameObjects && !sameCount: // objects of later pages are missing, here or upstream
		difference = fmt.Sprintf("the page from %q on has %d objects after it, upstream %d", start, ours.Remaining, theirs.Meta.Remaining)
		sameObjects = false
	case difference == "":
		difference = fmt.Sprintf("the page from %q on has other bytes around its objects, or other headers", start)
	}
	return ours.Next, &MismatchError{Difference: difference, SameObjects: sameObjects}
}

// difference describes the first difference between the objects of a page and the upstream's items; "" if there is none.
// It reports whether both are the same objects at the same revisions, so that at most bytes differ.
func (c *Comparison) difference(objects []*index.Object, items [][]byte) (difference string, sameObjects bool) {
	for i, item := range items {
		m, err := c.Source.Encoding().Item(item)
		if err != nil {
			return fmt.Sprintf("object %d of a page cannot be read upstream", i+1), false
		}
		key := index.JoinKey(m.Namespace, m.Name)
		if i == len(objects) || key < objects[i].Key {
			return key + " is missing", false
		}
		o := objects[i]
		switch {
		case key > o.Key:
			return o.Key + " is not there upstream", false
		case m.Revision != o.Revision:
			return fmt.Sprintf("%s is of revision %d, upstream of %d", key, o.Revision, m.Revision), false
		case difference == "" && !bytes.Equal(o.Bytes, item):
			difference = key + " has other bytes"
		}
	}
	if len(objects) > len(items) {
		return objects[len(items)].Key + " is not there upstream", false
	}
	return difference, true
}

// read reads a list. It is an error if the list is not at the revision.
func (c *Comparison) read(ctx context.Context, revision uint64, query url.Values) (List, error) {
	list := c.Source.List
	if c.Insists {
		list = c.Source.Insist
	}
	l, err := list(ctx, "", query)
	if err == nil && l.Meta.Revision != revision {
		err = wire.Inconsistent("a list at revision %d that was asked for at %d", l.Meta.Revision, revision)
	}
	return l, err
}

// isUncounted reports whether the upstream did not count the objects that remain after a page. (1.37 does not count them
// for shards.)
func (s ListState) isUncounted(theirs List) bool {
	return s.Envelope.Sharded && !theirs.Meta.HasRemaining
}

// hasBytes reports whether a page of s, written as a list, has the bytes of the upstream's list, and the headers.
func (s ListState) hasBytes(page index.Page, theirs List, headers http.Header) bool {
	isCounted := page.Counted && !s.isUncounted(theirs)
	meta := wire.ListMeta{Revision: s.Revision, Remaining: page.Remaining, HasRemaining: isCounted}
	if s.Envelope.Sharded {
		meta.Shards = wire.AllShards
	}
	if page.Next != "" {
		// Continue tokens are not compared: there are two forms of them, which this package does not know.
		meta.Continue = theirs.Meta.Continue
	}
	var items [][]byte
	for _, o := range page.Objects {
		items = append(items, o.Bytes)
	}
	return bytes.Equal(s.Envelope.Render(meta, items), theirs.Body) &&
		s.Envelope.ContentType == theirs.Header.Get("Content-Type") && maps.EqualFunc(s.Envelope.Headers, headers, slices.Equal)
}
