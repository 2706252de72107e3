package source

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// TestComparePagesOfShards: after a page of a shard, what remains is counted by 1.36 and not by 1.37. If it is
// counted, the count must be right, and shards must be known.
func TestComparePagesOfShards(t *testing.T) {
	const (
		list = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"x"%s},"items":[%s]}` + "\n"
		item = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}`
	)
	const shards = `,"shardInfo":{"selector":"` + wire.AllShards + `"}`
	src := Source{Resource: CollectionKey{Namespaced: true, Representation: media.JSON}}
	read := func(meta string) ListResponse {
		l := ListResponse{Body: fmt.Appendf(nil, list, meta, item), Header: http.Header{"Content-Type": {"application/json"}}}
		var err error
		l.List, err = src.Encoding().List(l.Body)
		expect.NoError(t, err)
		return l
	}
	envelope, _, err := wire.LearnEnvelope(src.Encoding(), read("").Body, "application/json", "")
	expect.NoError(t, err)
	envelope.Sharded = true
	ours := index.Page{Objects: []*index.Object{index.NewObject(1, "n/a", 5, []byte(item))}, Next: "n/a\x00", Remaining: 3, Counted: true}
	for meta, want := range map[string]bool{
		`,"remainingItemCount":3` + shards: true,
		shards:                             true,
		`,"remainingItemCount":2` + shards: false,
		`,"remainingItemCount":3`:          false,
	} {
		s := ListState{Envelope: envelope, Revision: 9}
		if got := s.isWrittenAs(ours, read(meta), nil); got != want {
			t.Errorf("%s: the same bytes: %t", meta, got)
		}
	}
}
