package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
)

const widgets = "/apis/example.com/v1/widgets"

// parsed is a list as a client with a token asks for it.
func parsed(t *testing.T, target string) policy.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Accept", "application/json")
	list, why := policy.Parse(r, kubehttp.Of(r).Info, policy.PlainToken)
	if why != "" {
		t.Fatal(why)
	}
	return list
}

// hourlyReader is the connection of a client that reads nothing for an hour.
type hourlyReader struct{ http.ResponseWriter }

func (hourlyReader) Write(p []byte) (int, error) {
	time.Sleep(time.Hour)
	return len(p), nil
}

func (hourlyReader) FlushError() error {
	time.Sleep(time.Hour)
	return nil
}

// followedWorld is a world whose widgets have been followed for a while.
func followedWorld(t *testing.T) (*modelWorld, *snapshot.Collection) {
	t.Helper()
	w := newModelWorld(t)
	w.probeTakes = 5 * time.Millisecond
	close(w.reviews)
	if _, why := w.handler.Catalog.Lookup(t.Context(), "example.com", "v1", "widgets"); why != "" {
		t.Fatal(why)
	}
	collection, why := w.handler.Collections.Use(modelWidgets)
	if why != "" {
		t.Fatal(why)
	}
	time.Sleep(20 * time.Second)
	return w, collection
}

// TestIndentedListsAreMeasured: how long one takes tells how long the next indented one does, and
// nothing of others.
func TestIndentedListsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, collection := followedWorld(t)
		f := w.handler.forwardNewest(httptest.NewRecorder(), parsed(t, widgets+"?pretty=1"), true)
		time.Sleep(10 * time.Second)
		f.ended(true)
		_, plain, _ := w.handler.newest(parsed(t, widgets))
		for want, q := range map[reason.Reason]index.Query{reason.None: f.q, reason.MostRecent: plain} {
			if got := collection.NoFresh(q, w.handler.Collections.LastProbe(), time.Minute, false); got != want {
				t.Errorf("%+v: %q, want %q", q, got, want)
			}
		}
	})
}

// TestASlowReaderMakesNobodyWait: how long a client takes to read what is forwarded does not count
// as kube-apiserver's time for such lists, nor does the first request of a caller.
func TestASlowReaderMakesNobodyWait(t *testing.T) {
	for name, accepted := range map[string]bool{"a slow reader": true, "a caller whom kube-apiserver has not accepted yet": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, collection := followedWorld(t)
				f := w.handler.forwardNewest(hourlyReader{}, parsed(t, widgets), accepted)
				if !accepted {
					time.Sleep(time.Hour)
				} else if _, err := f.Write([]byte("{")); err != nil {
					t.Error(err)
				} else if err := http.NewResponseController(f).Flush(); err != nil {
					t.Error(err)
				}
				f.ended(true)
				if got := collection.NoFresh(f.q, w.handler.Collections.LastProbe(), time.Minute, false); got != reason.MostRecent {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}
