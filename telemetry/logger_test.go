package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// The secret that must never be seen; it has the characters of a bearer token.
const secret = "s3cr3t-T0ken._~+/x=="

type credentials struct {
	Token string `json:"token"`
	Name  string `json:"name"`
}

type lazyToken struct{}

func (lazyToken) LogValue() slog.Value { return slog.StringValue("Bearer " + secret) }

// TestNoCredentialReachesTheLog: wherever in a record a credential stands, the line has none of it, and keeps what is
// none.
func TestNoCredentialReachesTheLog(t *testing.T) {
	const (
		jwt        = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9." + "c2lnbmF0dXJl"
		basic      = "Basic YTpi" + "c2VjcmV0"
		privateKey = "-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----\nafter"
	)
	header := http.Header{"Authorization": {"Custom " + secret}, "Cookie": {"a=b; sid=" + secret}, "Accept": {"application/json"}}
	body, err := json.Marshal(credentials{Token: secret, Name: "alice"})
	expect.NoError(t, err)
	attrs := func(args ...any) []any { return args }
	for name, tt := range map[string]struct {
		message string
		attrs   []any
		hide    string // beside the secret
		keep    string
	}{
		"message":    {message: "sent Bearer " + secret + " upstream", keep: "sent Bearer MASKED upstream"},
		"lower case": {message: "authorization: bearer " + secret},
		"error":      {attrs: attrs("err", fmt.Errorf("review: %w", errors.New("bad header \"Bearer "+secret+"\""))), keep: "review: bad header"},
		"keys": {attrs: attrs("authorization", secret, "Proxy-Authorization", secret, "token", secret, "bearer_token", secret,
			"idToken", secret, "Cookie", secret, "set-cookie", secret, "PASSWORD", secret, "client-secret", secret,
			"Sec-WebSocket-Protocol", secret, "client-key-data", secret, "method", "GET"), keep: "GET"},
		"bytes under a key":      {attrs: attrs("token", []byte(secret))},
		"group named so":         {attrs: attrs(slog.Group("credentials", "value", secret))},
		"lazy value":             {attrs: attrs("caller", lazyToken{})},
		"header":                 {attrs: attrs("header", header), keep: "application/json"},
		"printed header":         {message: fmt.Sprint(http.Header{"Cookie": {"sid=" + secret}, "Authorization": {basic}}), hide: "YTpi"},
		"structure":              {attrs: attrs("who", map[string]any{"token": secret, "name": "alice"}), keep: "alice"},
		"pointer to a structure": {attrs: attrs("who", &credentials{Token: secret, Name: "alice"}), keep: "alice"},
		"JSON as text":           {attrs: attrs("body", string(body)), keep: "alice"},
		"web token":              {message: "got " + jwt, hide: "c2lnbmF0dXJl"},
		"websocket sub-protocol": {
			message: "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io", hide: "c2VjcmV0",
			keep: "v5.channel.k8s.io",
		},
		"user and password in a URL": {message: "dial https://alice:hunter2@proxy:3128/x", hide: "hunter2", keep: "proxy:3128/x"},
		"query parameter":            {message: "GET /x?access_token=hunter2&limit=5", hide: "hunter2", keep: "limit=5"},
		"private key":                {message: privateKey, hide: "hunter2", keep: "after"},
	} {
		for _, format := range []Format{FormatText, FormatJSON} {
			t.Run(name+"/"+string(format), func(t *testing.T) {
				var out bytes.Buffer
				NewLogger(&out, format, slog.LevelInfo).Info(tt.message, tt.attrs...)
				line := out.String()
				if strings.Contains(line, secret) || tt.hide != "" && strings.Contains(line, tt.hide) {
					t.Errorf("it is in the log: %s", line)
				}
				expect.Says(t, line, Masked, tt.keep)
				if strings.Count(line, "\n") != 1 {
					t.Errorf("not one line: %q", line)
				}
			})
		}
	}
	var out bytes.Buffer
	NewLogger(&out, FormatText, slog.LevelInfo).WithGroup("tokens").With("alice", secret).Info("m")
	if strings.Contains(out.String(), secret) {
		t.Errorf("a logger's own group and attributes are in the log: %s", &out)
	}
}

// TestOrdinaryRecordsAreUntouched: a record without credentials is written as it is.
func TestOrdinaryRecordsAreUntouched(t *testing.T) {
	var out bytes.Buffer
	logger := NewLogger(&out, FormatJSON, slog.LevelInfo)
	logger.Debug("not at this level")
	logger.Warn("list refused", "path", "/api/v1/namespaces/a/secrets", "limit", 5, "err", errors.New("no route to host"))

	_, got, _ := strings.Cut(out.String(), ",") // after the time
	expect.Same(t, `"level":"WARN","msg":"list refused","path":"/api/v1/namespaces/a/secrets","limit":5,"err":"no route to host"}`+"\n", got)
}

// TestAccessLevel: it has a name, its place between two others, and masks as they do.
func TestAccessLevel(t *testing.T) {
	for _, format := range []Format{FormatText, FormatJSON} {
		for name, want := range map[string]bool{"debug": true, "ACCESS": true, "info": false, "warn": false, "error": false} {
			level, err := ParseLevel(name)
			expect.NoError(t, err)
			var out bytes.Buffer
			NewLogger(&out, format, level).Log(t.Context(), LevelAccess, "request", "token", secret)
			if got := strings.Contains(out.String(), "ACCESS"); got != want || strings.Contains(out.String(), secret) {
				t.Errorf("%s, %s: %q", format, name, &out)
			}
		}
	}
	if _, err := ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), "choose debug, access, info, warn or error") {
		t.Errorf("got %v", err)
	}
}

// TestLibraries: messages of libraries are logged only at level debug, and their details (bodies of requests) never.
func TestLibraries(t *testing.T) {
	for level, want := range map[slog.Level]string{
		slog.LevelInfo:  "",
		slog.LevelDebug: "level=ERROR msg=failure a=1\nlevel=INFO msg=start a=1\n",
	} {
		var out bytes.Buffer
		library := Libraries(NewLogger(&out, FormatText, level)).With("a", 1)
		library.Error("failure")
		library.Info("start")
		library.Log(t.Context(), slog.LevelDebug-4, "body of a request")
		expect.Same(t, want, regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(out.String(), ""))
	}
}

// TestLogMasksBootstrapTokens: a bootstrap token that came into a line by an error's text is masked there, and what only looks a
// little like one is not.
func TestLogMasksBootstrapTokens(t *testing.T) {
	for text, want := range map[string]string{
		"abcdef.0123456789abcdef":                          Masked,
		"join abcdef.0123456789abcdef, please":             "join " + Masked + ", please",
		"a=abcdef.0123456789abcdef b=x":                    "a=" + Masked + " b=x",
		"abcdef.0123456789abcdef abcdef.0123456789abcdef.": Masked + " " + Masked + ".",
		"foobar.services":                                  "foobar.services",
		"x-abcdef.0123456789abcdef":                        "x-abcdef.0123456789abcdef", // an Event's name
		"a.abcdef.0123456789abcdef":                        "a.abcdef.0123456789abcdef",
	} {
		var out bytes.Buffer
		NewLogger(&out, FormatJSON, slog.LevelInfo).Info("test", "error", text)
		if !strings.Contains(out.String(), `"error":"`+want+`"`) {
			t.Errorf("%q: %s", text, &out)
		}
	}
}

// TestUserAgent: of a User-Agent the first word is kept, unless it may be a credential.
func TestUserAgent(t *testing.T) {
	jwt := "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9." + "c2lnbmF0dXJl"
	for header, want := range map[string]string{
		"": "(none)", "   ": "(none)",
		"kubectl/v1.36.3 (linux/amd64) kubernetes/0123456789abcdef0123456789abcdef01234567":  "kubectl/v1.36.3",
		"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/1234567/tokens-controller": "kube-controller-manager/v1.36.3",
		"Mozilla/5.0 (X11; Linux x86_64)": "Mozilla/5.0",
		"my_own.tool~1":                   "my_own.tool~1",
		"Go-http-client/2.0":              "Go-http-client/2.0",
		"Bearer " + secret:                "Bearer",
		"Basic YTpi" + "c2VjcmV0":         "Basic",
		jwt:                               Masked,
		jwt[:30]:                          Masked,
		"tool/" + jwt:                     Masked,
		"tool/0123456789abcdef0123456789abcdef01234567": Masked,
		"vlx3q7h2m5k8n4p6r9t1w0yzab":                    Masked,
		"abcdef.0123456789abcdef":                       Masked,
		"kubeadm/abcdef.0123456789abcdef":               Masked,
		"tool abcdef.0123456789abcdef":                  "tool",
		"job-6ba7b810-9dad-11d1-80b4-00c04fd430c8/1":    "job-6ba7b810-9dad-11d1-80b4-00c04fd430c8/1",
		"tool/v0.0.0-20260501123456-abcdef123456":       "tool/v0.0.0-20260501123456-abcdef123456", // a version of Go's
		"web-7d4b9c6f5-x2x8q":                           "web-7d4b9c6f5-x2x8q",                     // a pod of a Deployment
		"team-a-2026":                                   "team-a-2026",
		"deadbeefdeadbeef":                              "deadbeefdeadbeef",
		"ghp_16C7e42F292c6912E7710c838347Ae178B4a":      Masked,
		"https://alice:" + secret + "@example.com/":     Masked,
		"?token=" + secret:                              Masked,
		"<script>alert(1)</script>":                     Masked,
		"a\x1b[2J":                                      Masked,
		"café/1":                                        Masked,
		strings.Repeat("a", 65):                         Masked,
		strings.Repeat("a-", 32):                        strings.Repeat("a-", 32),
		strings.Repeat("é", 5000):                       Masked,
	} {
		if got := UserAgent(header); got != want {
			t.Errorf("%q is %q, want %q", header, got, want)
		}
	}
}

// FuzzUserAgent: whatever a client sends, what is kept of it is short, printable and safe to print.
func FuzzUserAgent(f *testing.F) {
	for _, seed := range []string{"", "kubectl/v1", "Bearer abc", "\x1b]0;x\a", "<b>", strings.Repeat("x", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got := UserAgent(header)
		if got == "(none)" {
			return
		}
		if !productPattern.MatchString(got) {
			t.Errorf("%q is %q", header, got)
		}
	})
}
