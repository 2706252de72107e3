package crowd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// again is how long after a break the history is read on.
const again = 100 * time.Millisecond

// History is all changes of some kinds, as etcd has them. The zero History is empty. Safe for
// concurrent use.
type History struct {
	mu      sync.Mutex
	now     map[kinds.Kind]map[string]*object
	changes map[kinds.Kind][]change // in the order of revisions
	to      uint64                  // all up to here is known
}

// change is what one write made of an object: before is nil of a new one, after of a deleted one.
type change struct {
	revision      uint64
	before, after *object
}

// Follow reads etcd's events from the beginning until ctx ends. It fails if etcd was compacted
// before it began, or while it could not read.
func (h *History) Follow(ctx context.Context, etcd string, of ...kinds.Kind) error {
	for {
		if err := h.read(ctx, etcd, of); err != nil {
			return err
		}
		if !poll.Pause(ctx, again) {
			return nil
		}
	}
}

// To is the revision up to which all is known.
func (h *History) To() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.to
}

// response is what etcd's JSON gateway says of a watch.
type response struct {
	Result struct {
		CompactRevision uint64 `json:"compact_revision,string"`
		Events          []struct {
			Type string
			KV   struct {
				Key, Value  []byte
				ModRevision uint64 `json:"mod_revision,string"`
			}
		}
	}
}

// read is one watch of everything, to its end. That there is none is no error: etcd may be away.
func (h *History) read(ctx context.Context, etcd string, of []kinds.Kind) error {
	all := []byte{0}
	body, err := json.Marshal(map[string]any{"create_request": map[string]any{"key": all, "range_end": all, "start_revision": h.To() + 1}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, etcd+"/v3/watch", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil // etcd is away
	}
	defer resp.Body.Close()
	for in := json.NewDecoder(resp.Body); ; {
		var r response
		if in.Decode(&r) != nil {
			return nil
		}
		if r.Result.CompactRevision > 0 {
			return fmt.Errorf("etcd was compacted at %d, and its history is known up to %d only", r.Result.CompactRevision, h.To())
		}
		for _, e := range r.Result.Events {
			var value []byte
			if e.Type != "DELETE" {
				value = e.KV.Value
			}
			if err := h.add(of, string(e.KV.Key), value, e.KV.ModRevision); err != nil {
				return err
			}
		}
	}
}

// add takes in one event. value is nil if the key was deleted.
func (h *History) add(of []kinds.Kind, key string, value []byte, revision uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.to = revision
	i := slices.IndexFunc(of, func(k kinds.Kind) bool { return strings.HasPrefix(key, prefix(k)) })
	if i < 0 {
		return nil
	}
	k := of[i]
	if h.now == nil {
		h.now, h.changes = map[kinds.Kind]map[string]*object{}, map[kinds.Kind][]change{}
	}
	if h.now[k] == nil {
		h.now[k] = map[string]*object{}
	}
	c := change{revision: revision, before: h.now[k][key]}
	if value == nil {
		delete(h.now[k], key)
	} else {
		o, err := readObject(value)
		if err != nil {
			return fmt.Errorf("%s at revision %d in etcd: %w", key, revision, err)
		}
		o.revision = revision
		c.after, h.now[k][key] = &o, &o
	}
	h.changes[k] = append(h.changes[k], c)
	return nil
}

// prefix is that of a kind's keys in etcd.
func prefix(k kinds.Kind) string {
	if k.Group() == "" {
		return "/registry/" + k.Plural + "/"
	}
	return "/registry/" + k.Group() + "/" + k.Plural + "/"
}

// since returns the changes of a kind above a revision.
func (h *History) since(k kinds.Kind, revision uint64) []change {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.changes[k]
	return all[sort.Search(len(all), func(i int) bool { return all[i].revision > revision }):]
}

// state returns what a selection had at a revision, in the order of keys.
func (h *History) state(s selection, revision uint64) []*object {
	objects := map[string]*object{}
	for _, c := range h.since(s.Kind, 0) {
		switch {
		case c.revision > revision:
		case c.after == nil:
			delete(objects, c.before.key())
		default:
			objects[c.after.key()] = c.after
		}
	}
	var chosen []*object
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if s.has(objects[key]) {
			chosen = append(chosen, objects[key])
		}
	}
	return chosen
}

// await waits until all up to a revision is known.
func (h *History) await(ctx context.Context, revision uint64) error {
	return poll.Retry(ctx, "the history in etcd", func() error {
		if to := h.To(); to < revision {
			return fmt.Errorf("it is known up to %d, not %d", to, revision)
		}
		return nil
	})
}
