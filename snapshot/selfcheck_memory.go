package snapshot

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"slices"
)

// What is made of the objects in memory (indexes, counts, compressed segments) needs no upstream to
// be checked: it is held against the objects, and these against the upstream.

// indexedAtOnce is for how many objects one check looks into the indexes.
const indexedAtOnce = 20_000

// memory checks what is made of the objects of s: the indexes from one key on, and of the page that
// is compared byte by byte, from another, what stands beside the bytes of each object, and what
// those get who accept gzip. It returns where the next check of the indexes begins. The error is a
// mismatchError or nil.
func (c *comparison) memory(s Snapshot, at cursors) (next string, err error) {
	next, differences := s.tree.checkIndexes(at.indexes, indexedAtOnce)
	if len(differences) == 0 {
		start, limit := s.tree.bytesPage(at.bytes)
		page := s.Page(Query{Start: start, Limit: limit}, nil)
		if differences = c.checkObjects(s.Frame, page.Objects); len(differences) == 0 && c.compressor != nil {
			differences = c.compressor.check(s, page)
		}
	}
	if len(differences) > 0 {
		return next, &mismatchError{place{inMemory, at.indexes}, differences}
	}
	return next, nil
}

// checkIndexes names objects from a key on, of so many at most, that the indexes of t do not have as they are, and counts
// that are wrong. It returns where to go on.
func (t tree) checkIndexes(from string, atMost int) (next string, found []string) {
	total := t.len()
	// What stands in an index and is no object (any more) shows in their number.
	if n := t.labels.len(); n != total {
		found = append(found, fmt.Sprintf("%d objects have %d entries in the index of labels", total, n))
	}
	if t.nodes != nil && t.nodes.Len() != total {
		found = append(found, fmt.Sprintf("%d objects have %d entries in the index of a field", total, t.nodes.Len()))
	}
	if n := t.count("", ""); n != int64(total) {
		found = append(found, fmt.Sprintf("%d objects are counted as %d", total, n))
	}
	seen := 0
	t.ascend(from, "", func(o *Object) bool {
		if seen++; seen > atMost || len(found) >= maxDifferences {
			next = o.Key
			return false
		}
		if !t.labels.hold(o.Key, o.labels) {
			found = append(found, o.Key+" has other labels in the index")
		}
		if t.nodes != nil && !t.nodes.Has(o.nodeKey()) {
			found = append(found, o.Key+" has another value in the index of a field")
		}
		return true
	})
	return next, found
}

// checkObjects names objects whose bytes say something else than what is kept beside them.
func (c *comparison) checkObjects(frame *Frame, objects []*Object) (found []string) {
	e := c.source.encoding()
	for _, o := range objects {
		if len(found) >= maxDifferences {
			break
		}
		m, err := e.item(o.Bytes)
		if err != nil {
			found = append(found, o.Key+" cannot be read any more")
			continue
		}
		values, err := e.values(frame.paths, o.Bytes)
		if err != nil || joinKey(m.namespace, m.name) != o.Key || m.revision != o.Revision ||
			!equalLabels(m.labels, o.labels) || !slices.Equal(values, o.fields) {
			found = append(found, o.Key+" is not what its bytes say")
		}
	}
	return found
}

// equalLabels compares also sets that nobody shares.
func equalLabels(a, b labelSet) bool {
	if a.large == nil || b.large == nil {
		return a == b
	}
	return maps.Equal(a.large.values, b.large.values)
}

// check writes a page as those get it who accept gzip, and says whether it is another one when it is
// read.
func (c *Compressor) check(s Snapshot, page Page) (found []string) {
	var compressed bytes.Buffer
	_ = c.Write(&compressed, s.Frame, nil, page.Objects, nil) // which does not fail, into memory
	read, err := unpack(&compressed)
	if err != nil {
		return []string{fmt.Sprintf("a list cannot be read after its compression: %v", err)}
	}
	rest := read
	for i, o := range page.Objects {
		for _, part := range [][]byte{s.Frame.AppendItemHead(nil, i, len(o.Bytes)), o.Bytes} {
			var is bool
			if rest, is = bytes.CutPrefix(rest, part); !is {
				return []string{o.Key + " has other bytes after its compression"}
			}
		}
	}
	if len(rest) > 0 {
		return []string{"a list is longer after its compression"}
	}
	return nil
}

// unpack is what any client does. The standard library's reader has nothing in common with the writer.
func unpack(compressed io.Reader) ([]byte, error) {
	in, err := gzip.NewReader(compressed)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(in)
}
