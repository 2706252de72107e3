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

// TestSearch: Search finds secrets in any text, whole or in part, under the names with which they were added.
func TestSearch(t *testing.T) {
	var r secrets.Registry
	token, key := rand.Text(), newPEM(t)
	r.Add("alice's token", token)
	r.Add("a client's token", token)
	r.Add("nobody's token", "")
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(strings.Repeat("certificate", 20))})
	r.AddKey("the key", append(public, key...))
	r.AddIdentity("the certificate's user", "certuser")
	body := strings.Join(strings.Split(strings.TrimSpace(string(key)), "\n")[1:], "\n")
	body, _, _ = strings.Cut(body, "\n-----")
	jwt := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"kubernetes"}`)) + ".c2ln"
	const alice, privateKey, header, user = "alice's token", "the key", "the value of an Authorization header", "the certificate's user"

	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "level=INFO msg=serving bearer token authentication of everyone: Bearer [hidden]\n", nil},
		{"a token", "a\nmsg=" + token + "\nb", []string{alice}},
		{"its beginning", "msg=" + token[:12] + "...", []string{alice}},
		{"its end", "msg=..." + token[len(token)-12:], []string{alice}},
		{"in base64", base64.StdEncoding.EncodeToString([]byte("x" + token)), []string{alice}},
		{"in base64 of more", base64.URLEncoding.EncodeToString([]byte(`{"token":"` + token + `"}`)), []string{alice}},
		{"in hex", hex.EncodeToString([]byte("Bearer " + token)), []string{alice}},
		{"a header that nobody added", `"Authorization":["Bearer 0123456789abcdefghijkl"]`, []string{header}},
		{"a header in capitals", "authorization: BEARER 0123456789abcdefghijkl", []string{header}},
		{"a header after words that begin so", "bearer, basic: basic 0123456789abcdefghijkl", []string{header}},
		{"a token after its beginning", token[:11] + token, []string{alice}},
		{"a header", "Authorization: bearer " + token, []string{alice, header}},
		{"a JSON web token", "token=" + jwt, []string{"a JSON web token"}},
		{"a key", string(key), []string{"a private key", privateKey}},
		{"a certificate beside the key", string(public), nil},
		{"a key's body", body, []string{privateKey}},
		{"a key in a JSON string", fmt.Sprintf("%q", body), []string{privateKey}},
		{"a key in a kubeconfig", base64.StdEncoding.EncodeToString([]byte(string(key))), []string{privateKey}},
		{"an identity", "error=\"users \\\"certuser\\\" is forbidden\"", []string{user}},
		{"part of another word", "certuser-binding mycertuser", nil},
		{"a word and part of one", "certusers certuser", []string{user}},
		{"another name in capitals", "CERTUSER", nil},
		{"an audit log", `{"kind":"Event","apiVersion":"audit.k8s.io/v1","user":{"username":"certuser"}}` + "\n", nil},
		{"a token in an audit log", `{"kind":"Event","apiVersion":"audit.k8s.io/v1","user":{"username":"` + token + `"}}`, []string{alice}},
		{"an identity beside an audit log", `{"kind":"Event","apiVersion":"audit.k8s.io/v1"}` + "\ncertuser", []string{user}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, leak := range r.Search("its log", tt.text) {
				got = append(got, leak.Secret)
				text := leak.Error()
				for _, value := range []string{token, token[:12], token[len(token)-12:], body, jwt, "certuser\\"} {
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

// TestShortSecretsAreRefused: Add panics for a credential so short that it would be found everywhere.
func TestShortSecretsAreRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Add accepts a secret of one letter")
		}
	}()
	var r secrets.Registry
	r.Add("a letter", "a")
}
