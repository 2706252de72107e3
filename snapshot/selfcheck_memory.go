package snapshot

import (
	"slices"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
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
	next, differences := s.tree.Check(at.indexes, indexedAtOnce)
	if len(differences) == 0 {
		start, limit := comparedPage(s.tree, at.bytes)
		page := s.Page(index.Query{Start: start, Limit: limit}, nil)
		if differences = c.checkObjects(s.Frame, page.Objects); len(differences) == 0 && c.compressor != nil {
			differences = c.compressor.Check(s.Frame, page.Objects)
		}
	}
	if len(differences) > 0 {
		return next, &mismatchError{place{inMemory, at.indexes}, differences}
	}
	return next, nil
}

// checkObjects names objects whose bytes say something else than what is kept beside them.
func (c *comparison) checkObjects(frame *wire.Frame, objects []*index.Object) (found []string) {
	e := c.source.encoding()
	for _, o := range objects {
		if len(found) >= index.MaxDifferences {
			break
		}
		m, err := e.Item(o.Bytes)
		if err != nil {
			found = append(found, o.Key+" cannot be read any more")
			continue
		}
		values, err := e.Values(frame.Paths, o.Bytes)
		if err != nil || index.JoinKey(m.Namespace, m.Name) != o.Key || m.Revision != o.Revision ||
			!m.Labels.Equal(o.Labels) || !slices.Equal(values, o.Fields) {
			found = append(found, o.Key+" is not what its bytes say")
		}
	}
	return found
}
