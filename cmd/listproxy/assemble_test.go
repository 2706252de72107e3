package main

import (
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestFeedsFollowNoRedirect: what a feed asks of the upstream, it asks nowhere else, not even at the
// same address: there are other objects.
func TestFeedsFollowNoRedirect(t *testing.T) {
	var redirected atomic.Int32
	var api http.ServeMux
	for path, document := range map[string]string{
		"/version": `{"gitVersion":"v1.36.3"}`,
		"/api/v1":  `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","kind":"Pod","namespaced":true,"verbs":["list","watch"]}]}`,
	} {
		api.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, document)
		})
	}
	api.HandleFunc("/api/v1/", func(w http.ResponseWriter, r *http.Request) {
		redirected.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	api.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { t.Error("a feed has followed a redirect") })
	api.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	server := httptest.NewUnstartedServer(&api)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()

	o, err := parse()
	expect.NoError(t, err)
	discard := slog.New(slog.DiscardHandler)
	observing, err := newObserving(t.Context(), discard)
	expect.NoError(t, err)
	defer observing.close(discard)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := &rest.Config{Host: server.URL, BearerToken: "own", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	way, err := reach(config, false, discard)
	expect.NoError(t, err)
	a, err := o.assemble(way, &ports{}, observing, discard)
	expect.NoError(t, err)
	defer a.close()
	go a.cluster.Run(t.Context())
	poll.Until(t, time.Minute, "a feed has been redirected twice", func() bool {
		a.collections.Keep(snapshot.Resource{
			GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true, Representation: media.JSON,
		})
		return redirected.Load() > 1 // so that the first has been followed, if it is
	})
}
