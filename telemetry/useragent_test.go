package telemetry

import (
	"strings"
	"testing"
)

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
		"6ba7b810-9dad-11d1-80b4-00c04fd430c8":          Masked,
		"job-6ba7b810-9dad-11d1-80b4-00c04fd430c8/1":    Masked,
		"agent-vlx3q7h2m5k8n4p6/1":                      Masked,
		"tool/v0.0.0-20260501123456-abcdef123456":       "tool/v0.0.0-20260501123456-abcdef123456",
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

// Whatever a client sends, what is kept of it is short, printable and safe to print.
func FuzzUserAgent(f *testing.F) {
	for _, seed := range []string{"", "kubectl/v1", "Bearer abc", "\x1b]0;x\a", "<b>", strings.Repeat("x", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got := UserAgent(header)
		if got == noUserAgent {
			return
		}
		if got == "" || len(got) > maxUserAgentWord || strings.ContainsFunc(got, func(r rune) bool { return !isTokenOrSlash(r) }) {
			t.Errorf("%q is %q", header, got)
		}
	})
}
