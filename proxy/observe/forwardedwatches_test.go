package observe

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestStreamingListsAreBounded: whatever labels there are.
func TestStreamingListsAreBounded(t *testing.T) {
	var o Observer
	for i := range 2 * maxResourceLabels {
		o.watches.beginStreaming(fmt.Sprint(i))
		o.watches.beginStreaming("0")
	}
	got := o.Streaming()
	if len(got) > maxResourceLabels+1 || got["0"] != 2*maxResourceLabels+1 || got[OtherLabel] == 0 {
		t.Errorf("%d labels, %d of the first, %d of others", len(got), got["0"], got[OtherLabel])
	}
}

func TestStreamingLists(t *testing.T) {
	for query, want := range map[string]bool{
		"": false, "watch=1": false, "watch=1&sendInitialEvents=true": true, "sendInitialEvents=1&watch=true": true,
		"sendInitialEvents=": true, "sendInitialEvents=false": false, "sendInitialEvents=False": false, "sendInitialEvents=0": false,
		"fieldSelector=sendInitialEvents": false, "xsendInitialEvents=true": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?"+query, nil)
		if got := streamsList(r.URL); got != want {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
}
