package secrets_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

func newPEM(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	expect.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// TestSearch: Search finds secrets in any text, whole or in part. It reports each under the name with which it was first added.
// It finds names of users as whole words only. Its errors say where a secret was emitted, without the secret.
func TestSearch(t *testing.T) {
	var r secrets.Registry
	token, key := rand.Text(), newPEM(t)
	r.Add("alice's token", token)
	r.Add("a client's token", token)
	r.Add("nobody's token", "")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(strings.Repeat("certificate", 20))})
	r.AddKey("the key", append(certificate, key...))
	r.AddIdentity("the certificate's user", "certuser")
	keyBody := strings.Join(strings.Split(strings.TrimSpace(string(key)), "\n")[1:], "\n")
	keyBody, _, _ = strings.Cut(keyBody, "\n-----")
	jwt := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"kubernetes"}`)) + ".c2ln"
	const partLength = 12                                                                                    // so many characters at either end of a token count as the token
	hidden := []string{token, token[:partLength], token[len(token)-partLength:], keyBody, jwt, "certuser\\"} // from errors
	const (
		alice      = "alice's token"
		privateKey = "the key"
		header     = "the value of an Authorization header"
		user       = "the certificate's user"
	)

	for _, tt := range []struct {
		name, text string
		want       []string // the names of the secrets
	}{
		{name: "no secret", text: "level=INFO msg=serving bearer token authentication of everyone: Bearer [hidden]\n"},
		// A token.
		{name: "whole token", text: "a\nmsg=" + token + "\nb", want: []string{alice}},
		{name: "beginning of a token", text: "msg=" + token[:partLength] + "...", want: []string{alice}},
		{name: "end of a token", text: "msg=..." + token[len(token)-partLength:], want: []string{alice}},
		{name: "token behind its own beginning", text: token[:partLength-1] + token, want: []string{alice}},
		{name: "token in base64, one byte from the beginning", text: base64.StdEncoding.EncodeToString([]byte("x" + token)), want: []string{alice}},
		{name: "token in base64 of JSON", text: base64.URLEncoding.EncodeToString([]byte(`{"token":"` + token + `"}`)), want: []string{alice}},
		{name: "token in hex", text: hex.EncodeToString([]byte("Bearer " + token)), want: []string{alice}},
		// What looks like a credential.
		{name: "header with an unknown token", text: `"Authorization":["Bearer 0123456789abcdefghijkl"]`, want: []string{header}},
		{name: "header in capitals", text: "authorization: BEARER 0123456789abcdefghijkl", want: []string{header}},
		{name: "header behind words that begin like one", text: "bearer, basic: basic 0123456789abcdefghijkl", want: []string{header}},
		{name: "header with a known token", text: "Authorization: bearer " + token, want: []string{alice, header}},
		{name: "JSON web token", text: "token=" + jwt, want: []string{"a JSON web token"}},
		// A private key.
		{name: "PEM of a key", text: string(key), want: []string{"a private key", privateKey}},
		{name: "PEM of a certificate, added with the key", text: string(certificate)},
		{name: "lines of a key without the PEM's frame", text: keyBody, want: []string{privateKey}},
		{name: "key in a JSON string", text: fmt.Sprintf("%q", keyBody), want: []string{privateKey}},
		{name: "key in base64, as in a kubeconfig", text: base64.StdEncoding.EncodeToString(key), want: []string{privateKey}},
		// The name of a user.
		{name: "name", text: "error=\"users \\\"certuser\\\" is forbidden\"", want: []string{user}},
		{name: "name within other words", text: "certuser-binding mycertuser"},
		{name: "name within another word, and alone", text: "certusers certuser", want: []string{user}},
		{name: "name in capitals", text: "CERTUSER"},
		// An audit log, which has names of users.
		{name: "name in an audit log", text: `{"kind":"Event","apiVersion":"audit.k8s.io/v1","user":{"username":"certuser"}}` + "\n"},
		{name: "token in an audit log", text: `{"kind":"Event","apiVersion":"audit.k8s.io/v1","user":{"username":"` + token + `"}}`, want: []string{alice}},
		{name: "name beside an audit log", text: `{"kind":"Event","apiVersion":"audit.k8s.io/v1"}` + "\ncertuser", want: []string{user}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, leak := range r.Search("its log", tt.text) {
				got = append(got, leak.Secret)
				text := leak.Error()
				for _, value := range hidden {
					if strings.Contains(text, value) {
						t.Errorf("the error gives the secret away: %s", text)
					}
				}
				if !strings.Contains(text, "its log") {
					t.Errorf("the error does not say where: %s", text)
				}
			}
			expect.Same(t, tt.want, got)
		})
	}
}
