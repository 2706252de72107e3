package authz

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// benchHeader is as long as a service account's token.
var benchHeader = http.Header{"Authorization": {"Bearer " + strings.Repeat("x", 1000)}}

// BenchmarkIdentify is paid by every request that may be answered from memory.
func BenchmarkIdentify(b *testing.B) {
	i := authntest.New(b)
	r := &http.Request{Header: benchHeader}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = i.Authenticate(r)
	}
}

// BenchmarkAllowedHit is a decision that is remembered.
func BenchmarkAllowedHit(b *testing.B) {
	r := newAuthorizer(b, proxytest.Transport(answerYes), "https://upstream.example", Config{TTL: time.Hour}, proxytest.DiscardLog())
	id, _ := authntest.New(b).Authenticate(&http.Request{Header: benchHeader})
	a := Attributes{Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "kube-system"}
	if allowed, err := r.Allowed(b.Context(), id, a); !allowed || err != nil {
		b.Fatal(allowed, err)
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = r.Allowed(b.Context(), id, a)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = r.Allowed(b.Context(), id, a)
			}
		})
	})
}
