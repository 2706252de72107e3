package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
)

// launchStandIn runs this test's own program in listproxy's place.
func launchStandIn(t *testing.T, ownToken string) *Proxy {
	t.Helper()
	t.Setenv(standInEnv, "yes")
	program, err := os.Executable()
	expect.NoError(t, err)
	p, err := LaunchProxy(t.Context(), ProxyOptions{
		Binary: program, Upstream: &rest.Config{Host: "https://127.0.0.1:1", BearerToken: ownToken},
	})
	expect.NoError(t, err)
	return p
}

// forgive takes back what Verdict would tell.
func forgive() (told int) {
	processes.Lock()
	defer processes.Unlock()
	told = len(processes.found)
	processes.found = nil
	return told
}

func newKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	expect.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// Whatever way a process ends, what it has emitted is searched.
func TestEmittedSecretsAreFound(t *testing.T) {
	own, client, key := newToken(), newToken(), newKey(t)
	keyLine := strings.Split(key, "\n")[1]
	ends := map[string]func(*Proxy) error{
		"stopped": (*Proxy).Stop,
		"killed":  func(p *Proxy) error { p.Kill(); return nil },
		"left":    nil,
	}
	for _, tt := range []struct {
		name, prints, answers string
		public                bool // the key's file is readable for all
		want                  string
	}{
		{name: "nothing", prints: "msg=hello", answers: "ok"},
		{name: "its own token, in its log", prints: "token=" + own, want: "listproxy's own token was emitted in its output: token=[SECRET]"},
		{name: "a client's token, in an answer", answers: client, want: "a client's token was emitted in the admin port's answer to /"},
		{name: "its key", prints: keyLine, want: "the key in tls.key was emitted in its output: [SECRET]"},
		{name: "a key for all to read", public: true, want: "tls.key holds a private key and has mode -rw-r--r--"},
	} {
		for how, end := range ends {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				t.Setenv(printsEnv, tt.prints)
				t.Setenv(answersEnv, tt.answers)
				t.Setenv(keyEnv, key)
				if tt.public {
					t.Setenv(modeEnv, "yes")
				}
				p := launchStandIn(t, own)
				p.RESTConfig(&rest.Config{BearerToken: client})
				var err error
				if end != nil {
					err = end(p)
				}
				var said strings.Builder
				code := verdict(0, &said)
				told := forgive()
				if failed := tt.want != "" || end == nil; (code != 0) != failed || !strings.Contains(said.String(), tt.want) {
					t.Errorf("the verdict is %d: %s", code, &said)
				}
				if (told != 0) != (tt.want != "") {
					t.Errorf("%d errors were kept for it", told)
				}
				if how == "stopped" && tt.want == "" && err != nil {
					t.Errorf("nothing was emitted, and yet: %v", err)
				}
				if how != "stopped" || tt.want == "" {
					return
				}
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want %q", err, tt.want)
				}
				for _, secret := range []string{own, client, keyLine} {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("the error gives it away: %v", err)
					}
				}
			})
		}
	}
}

func TestVerdictKeepsTheCode(t *testing.T) {
	if got := Verdict(2); got != 2 {
		t.Errorf("2 became %d", got)
	}
}
