package authn

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/proxytest"
)

// FuzzTokenSubject: what kube-apiserver has accepted may be anything, as far as this parser knows.
func FuzzTokenSubject(f *testing.F) {
	valid := strings.TrimPrefix(proxytest.WebToken(`{"iss":"https://issuer","sub":"alice"}`, "c2ln"), "Bearer ")
	f.Add(valid)
	f.Add(valid + ".")
	f.Add("..")
	f.Add("a.e30.b")
	f.Add(strings.TrimPrefix(proxytest.WebToken(`{"iss":1,"sub":["a"]}`, ""), "Bearer "))
	f.Add(strings.TrimPrefix(proxytest.WebToken(strings.Repeat("[", 20_000), ""), "Bearer "))
	f.Fuzz(func(t *testing.T, token string) {
		issuer, subject, ok := tokenSubject(token)
		if ok && (issuer == "" || subject == "") {
			t.Errorf("a subject without a name: %q, %q", issuer, subject)
		}
		if !ok {
			return
		}
		header, rest, _ := strings.Cut(token, ".")
		payload, signature, _ := strings.Cut(rest, ".")
		if len(token) > maxReadToken || strings.Contains(signature, ".") {
			t.Error("more was read than a token")
		}
		// Nothing but the claims says who it is.
		if i, s, ok := tokenSubject(header + "x." + payload + "." + signature + "x"); len(token) < maxReadToken-1 && (!ok || i != issuer || s != subject) {
			t.Errorf("%q, %q with another header and signature, not %q, %q", i, s, issuer, subject)
		}
	})
}
