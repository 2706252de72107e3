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

// TestComparePagesOfShards: isWrittenAs accepts a page of a shard without a remainingItemCount, as kube-apiserver 1.37 writes
// it, or with the right one, as 1.36 writes it. The list must have its shardInfo.
func TestComparePagesOfShards(t *testing.T) {
	const item = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}`
	src := Source{Collection: CollectionKey{Namespaced: true, Representation: media.JSON}}
	// listWith returns a list of the item whose metadata has more members.
	listWith := func(members string) ListResponse {
		const list = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"x"%s},"items":[%s]}` + "\n"
		l := ListResponse{Body: fmt.Appendf(nil, list, members, item), Header: http.Header{"Content-Type": {"application/json"}}}
		var err error
		l.List, err = src.Encoding().ParseList(l.Body)
		expect.NoError(t, err)
		return l
	}
	envelope, err := wire.LearnEnvelope(src.Encoding(), listWith("").Body, "application/json", "")
	expect.NoError(t, err)
	envelope.Sharded = true
	state := ListState{Envelope: envelope, Revision: 9}
	page := index.Page{
		Objects: []*index.Object{index.NewObject(1, "n/a", 5, []byte(item))},
		Next:    "n/a\x00", Remaining: 3,
	}
	const shardInfo = `,"shardInfo":{"selector":"` + wire.AllShards + `"}`
	for name, tt := range map[string]struct {
		members string // of the metadata of the upstream's list
		want    bool
	}{
		"counted and right":    {members: `,"remainingItemCount":3` + shardInfo, want: true},
		"not counted":          {members: shardInfo, want: true},
		"counted wrongly":      {members: `,"remainingItemCount":2` + shardInfo},
		"shardInfo is missing": {members: `,"remainingItemCount":3`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := state.isWrittenAs(page, listWith(tt.members), nil); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}
