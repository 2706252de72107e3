package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// namesPage is how many objects are compared by name and revision with one request, and
	// namesAtOnce in one check: a larger collection takes more checks. kube-apiserver 1.36 walks all
	// that remains behind every page, so small pages are dear.
	namesPage   = 1000
	leastNames  = 20
	namesAtOnce = 20_000
	// namesFor is how long that goes on in one check: a slow upstream takes more checks.
	namesFor = 30 * time.Second
	// bytesPage is how many objects are compared byte by byte in one check.
	bytesPage = 500
	// pageBytes is about how many bytes a page is to have at most.
	pageBytes = 4 << 20
	// The upstream rests between two pages as many times longer as it worked for the first.
	restFactor = 4
	leastRest  = 50 * time.Millisecond
)

// cursors are the keys at which the parts of a comparison begin. The zero value is the beginning.
type cursors struct {
	names, bytes, indexes string
}

// checkPart is a part of a comparison.
type checkPart int

const (
	byName checkPart = iota
	byBytes
	inMemory
)

// place is the page of a part that begins at a key.
type place struct {
	part checkPart
	from string
}

// beginsAt are the cursors that lead to a place, and from there on.
func (at cursors) beginsAt(p place) cursors {
	switch p.part {
	case byName:
		at.names = p.from
	case byBytes:
		at.bytes = p.from
	case inMemory:
		at.indexes = p.from
	}
	return at
}

// mismatchError is a state that is not the upstream's. It says where, names objects, and holds nothing
// of them.
type mismatchError struct {
	place       place
	differences []string
}

func (e *mismatchError) Error() string { return strings.Join(e.differences, "; ") }

// comparison compares states with those of the upstream at the same revision. It is for one
// goroutine, and holds two pages at most.
type comparison struct {
	source source
	// token makes a continue token for a page that begins at a key.
	token func(revision uint64, start string) string
	// metadata is the representation in which names are read; empty before the first page.
	metadata media.Representation
	// compressor writes lists for callers who accept gzip; nil: nobody gets them.
	compressor *gzip.Compressor
	// insists: what the upstream is too busy for is asked again.
	insists bool
}

// compare compares a part of s by name and revision, and a page of it byte by byte, and checks what is
// made of it in memory. It returns where to go on: also past what the upstream does not answer, so
// that one page it never answers does not keep all others from being looked at. The error is a
// mismatchError if a part is wrong; any other error says nothing about s.
func (c *comparison) compare(ctx context.Context, s Snapshot, at cursors) (next cursors, err error) {
	var errs [3]error
	next = at
	next.names, errs[byName] = c.names(ctx, s, at.names)
	if !isMismatch(errs[byName]) {
		next.bytes, errs[byBytes] = c.bytes(ctx, s, at.bytes)
	}
	next.indexes, errs[inMemory] = c.memory(s, at)
	return next, errors.Join(errs[:]...)
}

// again compares one place of s.
func (c *comparison) again(ctx context.Context, s Snapshot, p place) (err error) {
	switch p.part {
	case byName:
		_, _, err = c.namesPage(ctx, s, p.from)
	case byBytes:
		_, err = c.bytes(ctx, s, p.from)
	case inMemory:
		_, err = c.memory(s, cursors{bytes: p.from, indexes: p.from})
	}
	return err
}

func isMismatch(err error) bool {
	_, is := errors.AsType[*mismatchError](err)
	return is
}

// names compares which objects there are, and at which revisions, from a key on.
func (c *comparison) names(ctx context.Context, s Snapshot, from string) (next string, err error) {
	start := time.Now()
	for seen := 0; ; {
		begun := time.Now()
		next, n, err := c.namesPage(ctx, s, from)
		if err != nil {
			return next, err
		}
		if !sleep(ctx, max(leastRest, restFactor*time.Since(begun))) {
			return next, ctx.Err()
		}
		if seen += n; next == "" || seen >= namesAtOnce || time.Since(start) > namesFor {
			return next, nil
		}
		from = next
	}
}

// namesPage compares one page, and returns where the next begins and how many objects there were.
func (c *comparison) namesPage(ctx context.Context, s Snapshot, from string) (next string, n int, err error) {
	// Of large objects the metadata is a small part.
	limit := max(leastNames, pageLimit(s.tree, from, namesPage, pageBytes))
	theirs, err := c.readNames(ctx, s, c.pageQuery(s.Revision, from, limit))
	if err != nil {
		return s.Page(index.Query{Start: from, Limit: limit}, nil).Next, 0, err
	}
	return theirs.next(), len(theirs.objects), theirs.agree(s, from)
}

// named is an object of the upstream.
type named struct {
	key      string
	revision uint64
}

// names are those of a page of the upstream.
type names struct {
	objects []named
	// token is for the page after it; "" on the last one.
	token string
}

// next is where the page after it begins; "" if there is none.
func (n names) next() string {
	if n.token == "" {
		return ""
	}
	return n.objects[len(n.objects)-1].key + "\x00"
}

// agree holds the page, which begins at a key, against s.
func (n names) agree(s Snapshot, from string) error {
	if differences := differ(s.tree, from, n.next(), n.objects); len(differences) > 0 {
		return &mismatchError{place{byName, from}, differences}
	}
	return nil
}

// readNames reads a page of metadata: as protobuf where the upstream has it, since that is the
// cheapest, or as JSON.
func (c *comparison) readNames(ctx context.Context, s Snapshot, query url.Values) (names, error) {
	src := c.source
	if c.metadata == "" {
		c.metadata = media.MetadataProtobuf
	}
	src.resource.Representation = c.metadata
	theirs, err := c.read(ctx, src, "", s.Revision, query)
	if c.metadata == media.MetadataProtobuf && answered(err, http.StatusNotAcceptable) {
		c.metadata = media.MetadataJSON
		return c.readNames(ctx, s, query)
	}
	if err != nil {
		return names{}, err
	}
	page := names{token: theirs.Meta.Continue}
	for _, item := range theirs.Items {
		m, err := src.encoding().Item(item)
		if err != nil {
			return names{}, fmt.Errorf("an object's metadata cannot be read: %w", err)
		}
		if m.Name == "" {
			return names{}, fmt.Errorf("%w: an object without a name", wire.ErrForm)
		}
		page.objects = append(page.objects, named{index.JoinKey(m.Namespace, m.Name), m.Revision})
	}
	if page.token != "" && len(page.objects) == 0 {
		return names{}, fmt.Errorf("%w: an empty page that is not the last one", wire.ErrForm)
	}
	return page, nil
}

// bytes compares one page as it would be served: objects, frame, count and headers.
func (c *comparison) bytes(ctx context.Context, s Snapshot, from string) (next string, err error) {
	from, limit := comparedPage(s.tree, from)
	page := s.Page(index.Query{Start: from, Limit: limit}, nil)
	theirs, err := c.read(ctx, c.source, "", s.Revision, c.pageQuery(s.Revision, from, limit))
	if err != nil {
		return page.Next, err
	}
	if s.writes(page, theirs.List, theirs.body, theirs.header) {
		return page.Next, nil
	}
	return page.Next, &mismatchError{place{byBytes, from}, differInBytes(page.Objects, theirs.Items)}
}

// comparedPage is the page from a key on that is compared byte by byte: the first one if there is nothing
// any more from there on.
func comparedPage(t index.Tree, from string) (start string, limit int64) {
	if !t.Any(from, "") {
		from = ""
	}
	return from, pageLimit(t, from, bytesPage, pageBytes)
}

// answeredList is a page of the upstream.
type answeredList struct {
	wire.List
	body   []byte
	header http.Header
}

// pageQuery asks for a page that begins at a key, at exactly a revision.
func (c *comparison) pageQuery(revision uint64, from string, limit int64) url.Values {
	if from != "" {
		return url.Values{"limit": {strconv.FormatInt(limit, 10)}, "continue": {c.token(revision, from)}}
	}
	query := exactly(revision)
	query.Set("limit", strconv.FormatInt(limit, 10))
	return query
}

// exactly asks for a list at a revision.
func exactly(revision uint64) url.Values {
	return url.Values{
		"resourceVersion":      {strconv.FormatUint(revision, 10)},
		"resourceVersionMatch": {"Exact"},
	}
}

// read reads a list that the upstream has to answer at exactly a revision.
func (c *comparison) read(ctx context.Context, src source, namespace string, revision uint64, query url.Values) (answeredList, error) {
	read := src.list
	if c.insists {
		read = src.insist
	}
	body, header, err := read(ctx, namespace, query)
	if err != nil {
		return answeredList{}, err
	}
	l, err := src.encoding().List(body)
	if err != nil {
		return answeredList{}, fmt.Errorf("a list cannot be read: %w", err)
	}
	if l.Meta.Revision != revision {
		return answeredList{}, fmt.Errorf("the upstream answered at revision %d, not at %d", l.Meta.Revision, revision)
	}
	return answeredList{List: l, body: body, header: header}, nil
}

// pageLimit is a limit for a page from a key on: atMost objects, or as many as have about atMost
// bytes, and one at least.
func pageLimit(t index.Tree, from string, atMost, atMostBytes int64) int64 {
	n, size := int64(0), int64(0)
	t.Ascend(from, "", func(o *index.Object) bool {
		size += int64(len(o.Bytes))
		if n > 0 && size > atMostBytes {
			return false
		}
		n++
		return n < atMost
	})
	if size <= atMostBytes {
		return atMost // also if there are fewer: the upstream may have more
	}
	return n
}

// differ names objects with from <= key < end in which t is not what the upstream has there.
func differ(t index.Tree, from, end string, theirs []named) []string {
	var found []string
	i := 0
	t.Ascend(from, end, func(o *index.Object) bool {
		for ; i < len(theirs) && theirs[i].key < o.Key && len(found) < index.MaxDifferences; i++ {
			found = append(found, missing(theirs[i].key))
		}
		if len(found) >= index.MaxDifferences {
			return false
		}
		switch {
		case i == len(theirs) || theirs[i].key != o.Key:
			found = append(found, o.Key+" is not there upstream")
		case theirs[i].revision != o.Revision:
			found = append(found, fmt.Sprintf("%s is of revision %d, upstream of %d", o.Key, o.Revision, theirs[i].revision))
			i++
		default:
			i++
		}
		return len(found) < index.MaxDifferences
	})
	for ; i < len(theirs) && len(found) < index.MaxDifferences; i++ {
		found = append(found, missing(theirs[i].key))
	}
	return found
}

func missing(key string) string { return key + " is missing" }

// differInBytes names objects of a page that are not as in the upstream's.
func differInBytes(ours []*index.Object, theirs [][]byte) []string {
	if len(ours) != len(theirs) {
		return []string{fmt.Sprintf("a page of %d objects has %d upstream", len(ours), len(theirs))}
	}
	var found []string
	for i, o := range ours {
		if !bytes.Equal(o.Bytes, theirs[i]) && len(found) < index.MaxDifferences {
			found = append(found, o.Key+" has other bytes")
		}
	}
	if len(found) == 0 {
		return []string{"a list is written in another way"}
	}
	return found
}

// writes reports whether a page of s, written as a list, is the list that the upstream wrote.
func (s Snapshot) writes(page index.Page, theirs wire.List, body []byte, header http.Header) bool {
	meta := wire.ListMeta{Revision: s.Revision, Remaining: page.Remaining, HasRemaining: page.Counted}
	if page.Next != "" {
		// How tokens are made is not this package's business, and upstreams have two ways.
		meta.Continue = theirs.Meta.Continue
	}
	var items [][]byte
	for _, o := range page.Objects {
		items = append(items, o.Bytes)
	}
	return bytes.Equal(s.Frame.Render(meta, items), body) &&
		s.Frame.ContentType == header.Get("Content-Type") && slices.Equal(s.Frame.Warnings, header.Values("Warning"))
}
