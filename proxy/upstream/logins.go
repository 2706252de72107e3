package upstream

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// Login is a token or client certificate with which listproxy logs in at the API server.
type Login struct {
	// Kind is "token" or "client certificate".
	Kind string
	// From and Until are when it was issued and when it ends. From may be zero.
	From, Until time.Time
	// Pod: the token is for one pod only, so that no other replica has it.
	Pod bool
}

// The kinds of a [Login].
const (
	loginToken       = "token" // #nosec G101 -- no credential
	loginCertificate = "client certificate"
)

// soonShare: a login ends soon if less than this part of its lifetime is left. The kubelet renews
// the tokens of pods when a fifth is left, so a token that is renewed in time never ends soon.
const soonShare = 10

// EndsSoon says whether less than a tenth of the login's lifetime is left.
func (l Login) EndsSoon(now time.Time) bool {
	left := l.Until.Sub(now)
	return left <= 0 || !l.From.IsZero() && left < l.Until.Sub(l.From)/soonShare
}

// readLogins returns the logins of cfg whose end is known; those of plugins are not. It reads the
// files of the token and the certificate, which others may renew, and may block on them.
func readLogins(cfg *rest.Config) []Login {
	var logins []Login
	token := cfg.BearerToken
	if cfg.BearerTokenFile != "" {
		if read, err := os.ReadFile(cfg.BearerTokenFile); err == nil {
			token = strings.TrimSpace(string(read))
		}
	}
	if login, ok := tokenLogin(token); ok {
		logins = append(logins, login)
	}
	pem := cfg.CertData
	if len(pem) == 0 && cfg.CertFile != "" {
		if read, err := os.ReadFile(cfg.CertFile); err == nil {
			pem = read
		}
	}
	if len(pem) > 0 {
		if chain, err := cert.ParseCertsPEM(pem); err == nil && len(chain) > 0 {
			logins = append(logins, Login{Kind: loginCertificate, From: chain[0].NotBefore, Until: chain[0].NotAfter})
		}
	}
	return logins
}

// ownTokenEnded says whether a token has ended that only this replica has: the kubelet did not
// renew it.
func ownTokenEnded(logins []Login, now time.Time) bool {
	return slices.ContainsFunc(logins, func(login Login) bool { return login.Pod && !login.Until.After(now) })
}

// tokenLogin reads from a JSON web token when it ends (RFC 7519). It verifies nothing: the API
// server does.
func tokenLogin(token string) (Login, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Login{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Login{}, false
	}
	var claims struct {
		Issued  float64 `json:"iat"`
		Expires float64 `json:"exp"`
		// Of a service account's token: what it is bound to.
		Kubernetes struct {
			Pod struct {
				Name string `json:"name"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Expires <= 0 {
		return Login{}, false
	}
	login := Login{Kind: loginToken, Until: time.Unix(int64(claims.Expires), 0), Pod: claims.Kubernetes.Pod.Name != ""}
	if claims.Issued > 0 {
		login.From = time.Unix(int64(claims.Issued), 0)
	}
	return login, true
}
