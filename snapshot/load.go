package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// loadSilence is how long a streaming list may be silent before it is given up.
const loadSilence = 30 * time.Second

// learnTries is how often an object that changes all the time is looked at in a list and in a
// watch before the feed gives up for now.
const learnTries = 5

// loaded is a complete state, and the watch that goes on from it if there is one yet.
type loaded struct {
	state    tree
	revision uint64
	size     int64
	stream   *stream
}

// discard gives back what a state that is not used has on the budget's account.
func (l *loaded) discard(b *budget) {
	b.add(-l.size)
	if l.stream != nil {
		l.stream.stop()
	}
}

// add counts an object that came into the state, and what it replaced.
func (l *loaded) add(o, old *Object, b *budget) error {
	size := int64(0)
	if o != nil {
		size += o.size()
	}
	if old != nil {
		size -= old.size()
	}
	l.size += size
	b.add(size)
	if b.crowded() { // what is there already must not be the one to go
		return errFull
	}
	return nil
}

// learn makes the frame of the collection's lists, from a list of one object and one of none,
// and the form of its items, from that object as a watch sends it.
func (f *feed) learn(ctx context.Context) (*Frame, error) {
	empty, _, err := f.source.probe(ctx)
	if err != nil {
		return nil, err
	}
	none, _, err := learnFrame(empty, "", nil, "")
	if err != nil {
		return nil, err
	}
	for range learnTries {
		body, header, err := f.source.list(ctx, "", url.Values{"limit": {"1"}})
		if err != nil {
			return nil, err
		}
		frame, l, err := learnFrame(body, header.Get("Content-Type"), header.Values("Warning"), none.emptyItems)
		if err != nil {
			return nil, err
		}
		if len(l.items) == 0 {
			return frame, nil
		}
		inEvent, err := f.sameInWatch(ctx, l.items[0])
		if err != nil {
			return nil, err
		}
		if inEvent == nil {
			continue
		}
		frame.item, err = learnItem(l.items[0], inEvent)
		return frame, err
	}
	return nil, errors.New("the first object changes too often to be seen in a list and in a watch at the same revision")
}

// sameInWatch returns an object of a list as a watch sends it, or nil if it has changed since.
func (f *feed) sameInWatch(ctx context.Context, item []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, seamTimeout)
	defer cancel()
	m, err := parseMeta(item)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForm, err)
	}
	// resourceVersion=0: the upstream begins with the object as it is.
	s, err := f.source.watch(ctx, m.namespace, url.Values{
		"resourceVersion": {"0"},
		"fieldSelector":   {"metadata.name=" + m.name},
	}, shortWatch)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	for ev := range s.events {
		if ev.kind == "ADDED" && ev.meta.revision == m.revision {
			return ev.object, nil
		}
		if ev.meta.revision > m.revision {
			return nil, nil
		}
	}
	return nil, nil
}

// load reads a complete state: by a streaming list where the upstream has it, else page by
// page. Few feeds load at the same time.
func (f *feed) load(ctx context.Context, frame *Frame) (*loaded, error) {
	select {
	case f.loads <- struct{}{}:
		defer func() { <-f.loads }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l, err := f.loadStream(ctx, frame)
	if answered(err, http.StatusUnprocessableEntity, http.StatusBadRequest) {
		f.log.Info("the upstream has no streaming lists, the state is loaded page by page", "error", err)
		l, err = f.loadPages(ctx, frame)
	}
	return l, err
}

// loadStream reads the initial events of a streaming list. The watch goes on from there.
func (f *feed) loadStream(ctx context.Context, frame *Frame) (_ *loaded, err error) {
	s, err := f.source.watch(ctx, "", url.Values{
		"sendInitialEvents":    {"true"},
		"resourceVersionMatch": {"NotOlderThan"},
		"allowWatchBookmarks":  {"true"},
	}, watchTimeout+rand.N(watchTimeout))
	if err != nil {
		return nil, err
	}
	l := &loaded{state: newTree(), stream: s}
	defer func() {
		if err != nil {
			l.discard(f.collection.budget)
		}
	}()
	silence := time.NewTimer(loadSilence)
	defer silence.Stop()
	newest := uint64(0)
	for {
		select {
		case ev, ok := <-s.events:
			if !ok {
				return nil, s.err
			}
			silence.Reset(loadSilence)
			if ev.kind == "BOOKMARK" {
				if !ev.meta.endsInitial {
					continue
				}
				if ev.meta.revision < newest {
					return nil, poison("a state at revision %d holds an object of revision %d", ev.meta.revision, newest)
				}
				l.revision, s.from = ev.meta.revision, ev.meta.revision
				return l, nil
			}
			newest = max(newest, ev.meta.revision)
			ch, err := f.change(frame, ev)
			if err != nil {
				return nil, err
			}
			old, err := ch.apply(l.state)
			if err != nil {
				return nil, err
			}
			if err := l.add(ch.object, old, f.collection.budget); err != nil {
				return nil, err
			}
		case <-silence.C:
			return nil, fmt.Errorf("a streaming list was silent for %v", loadSilence)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// loadPages reads all pages of one list. A 410 in the middle ends the session; the next one
// begins again.
func (f *feed) loadPages(ctx context.Context, frame *Frame) (_ *loaded, err error) {
	l := &loaded{state: newTree()}
	defer func() {
		if err != nil {
			l.discard(f.collection.budget)
		}
	}()
	query := url.Values{"limit": {strconv.Itoa(initialLimit)}}
	for {
		body, _, err := f.source.list(ctx, "", query)
		if err != nil {
			return nil, err
		}
		page, err := parseList(body)
		if err != nil {
			return nil, err
		}
		if l.revision != 0 && page.meta.Revision != l.revision {
			return nil, poison("a page at revision %d of a list at revision %d", page.meta.Revision, l.revision)
		}
		l.revision = page.meta.Revision
		for _, item := range page.items {
			if !frame.item.known {
				return nil, errObject
			}
			m, err := parseMeta(item)
			if err != nil {
				return nil, poison("an item cannot be decoded: %v", err)
			}
			key, err := f.key(m)
			if err != nil {
				return nil, err
			}
			o := &Object{Key: key, Revision: m.revision, Bytes: bytes.Clone(item)}
			if l.state.set(o) != nil {
				return nil, poison("an object appears twice in one list")
			}
			if err := l.add(o, nil, f.collection.budget); err != nil {
				return nil, err
			}
		}
		if page.meta.Continue == "" {
			return l, nil
		}
		query.Set("continue", page.meta.Continue)
	}
}

// prove asks the upstream for the first page of a list at exactly the revision that was loaded,
// and compares it with the bytes that would be served: the frame, the form and the order of the
// items, the token and the count.
func (f *feed) prove(ctx context.Context, frame *Frame, l *loaded) error {
	const limit = 2
	body, header, err := f.source.list(ctx, "", url.Values{
		"resourceVersion":      {strconv.FormatUint(l.revision, 10)},
		"resourceVersionMatch": {"Exact"},
		"limit":                {strconv.Itoa(limit)},
	})
	if err != nil {
		return fmt.Errorf("the loaded state could not be compared with the upstream's: %w", err)
	}
	theirs, err := parseList(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errForm, err)
	}
	page := Snapshot{Revision: l.revision, Frame: frame, tree: l.state}.Page(Scope{}, "", limit, nil)
	meta := ListMeta{Revision: l.revision, Remaining: page.Remaining, HasRemaining: page.Next != ""}
	if page.Next != "" {
		// How tokens are made is not this package's business, and upstreams have two ways.
		meta.Continue = theirs.meta.Continue
	}
	var items [][]byte
	for _, o := range page.Objects {
		items = append(items, o.Bytes)
	}
	if !bytes.Equal(frame.render(meta, items), body) ||
		frame.ContentType != header.Get("Content-Type") || !slices.Equal(frame.Warnings, header.Values("Warning")) {
		return fmt.Errorf("%w: the loaded state, written as a list, is not the upstream's list at revision %d", errForm, l.revision)
	}
	return nil
}
