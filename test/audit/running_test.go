package audit

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/test/controlplane"
)

// memory answers every list with nothing and writes the events of a listproxy that had answered it
// from memory: a server that reads requests, asks the API server who sends them, and keeps an audit
// log, with listproxy's own parts.
type memory struct {
	url    string
	log    string
	client *http.Client
}

// answered is what memory says of its answers.
func answered(list policy.Request, id string) proxy.AuditedAnswer {
	representation, _ := list.Accept.Representation(true)
	return proxy.AuditedAnswer{
		ID: id, Semantics: policy.Any, Representation: representation, Revision: 7, Items: 0, Bytes: 2,
	}
}

func newMemory(t *testing.T) *memory {
	t.Helper()
	m := &memory{log: filepath.Join(t.TempDir(), "audit.log"), client: &http.Client{}}
	log, err := proxy.OpenAuditLog(proxy.AuditConfig{Path: m.log}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	identifier, err := proxy.NewIdentifier(proxy.IdentifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received := time.Now()
		list, reason := policy.Parse(r, policy.Own)
		if reason != "" {
			http.Error(w, "this list is not answered from memory: "+string(reason), http.StatusNotImplemented)
			return
		}
		whoAmI := newWhoAmI(t, r.Header.Get("Authorization"))
		defer whoAmI.Close()
		caller, refusal := identifier.Identify(r)
		if refusal != nil {
			http.Error(w, refusal.Message, refusal.Code)
			return
		}
		who, err := whoAmI.User(r.Context(), caller)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		entry, err := log.Begin(r, list, who, received)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("{}"))
		entry.Complete(answered(list, r.Header.Get("Audit-Id")))
	}))
	m.url = server.URL
	t.Cleanup(func() {
		server.Close()
		if err := log.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return m
}

// newWhoAmI returns a WhoAmI that asks with the given credentials, whoever is asked about.
func newWhoAmI(t *testing.T, authorization string) *proxy.WhoAmI {
	t.Helper()
	base, err := url.Parse(cp.URL())
	if err != nil {
		t.Error(err)
	}
	transport, err := rest.TransportFor(cp.RESTConfig(controlplane.Anonymous))
	if err != nil {
		t.Error(err)
	}
	w, err := proxy.NewWhoAmI(func(_ context.Context, _ proxy.Identity, r *http.Request) (*http.Response, error) {
		r.Header.Set("Authorization", authorization)
		return transport.RoundTrip(r)
	}, base, proxy.WhoAmIConfig{})
	if err != nil {
		t.Error(err)
	}
	return w
}
