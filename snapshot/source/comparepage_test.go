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

// TestComparePagesOfShards: the upstream's page of a list with a shard selector is as listproxy writes it in two cases: with
// the right remainingItemCount, as from kube-apiserver 1.36, and without one, as from 1.37. In both, the list must repeat the
// selector in its shardInfo.
func TestComparePagesOfShards(t *testing.T) {
	const item = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}`
	src := Source{Collection: CollectionKey{Namespaced: true, Representation: media.JSON}}
	// upstreamPage returns the upstream's page of the item. moreMetadata follows the revision and the token in the list's
	// metadata.
	upstreamPage := func(moreMetadata string) ListResponse {
		const list = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"x"%s},"items":[%s]}` + "\n"
		l := ListResponse{
			Body:   fmt.Appendf(nil, list, moreMetadata, item),
			Header: http.Header{"Content-Type": {media.JSONType}},
		}
		var err error
		l.List, err = src.Encoding().ParseList(l.Body)
		expect.NoError(t, err)
		return l
	}
	envelope, err := wire.LearnEnvelope(src.Encoding(), upstreamPage("").Body, media.JSONType, "")
	expect.NoError(t, err)
	envelope.Sharded = true
	state := ListState{Envelope: envelope, Revision: 9}
	ours := index.Page{
		Objects:   []*index.Object{index.NewObject(1, "n/a", 5, []byte(item))},
		Next:      "n/a\x00",
		Remaining: 3,
	}
	var noHeaders http.Header
	const shardInfo = `,"shardInfo":{"selector":"` + wire.AllShards + `"}`
	for name, tt := range map[string]struct {
		moreMetadata string // in the upstream's list
		want         bool   // the page is as listproxy writes it
	}{
		"the right count, as from 1.36": {moreMetadata: `,"remainingItemCount":3` + shardInfo, want: true},
		"no count, as from 1.37":        {moreMetadata: shardInfo, want: true},
		"a wrong count":                 {moreMetadata: `,"remainingItemCount":2` + shardInfo},
		"no shardInfo":                  {moreMetadata: `,"remainingItemCount":3`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := state.isWrittenAs(ours, upstreamPage(tt.moreMetadata), noHeaders); got != tt.want {
				t.Errorf("the page is written as the upstream's: got %t, want %t", got, tt.want)
			}
		})
	}
}
