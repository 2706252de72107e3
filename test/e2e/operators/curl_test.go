package operators

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
)

// TestCurlInPages runs every curl that the pages tell, in the same words. Only the ports and the
// API server are others.
func TestCurlInPages(t *testing.T) {
	// What each of them is to show.
	shows := [][2]string{{"/readyz?verbose", "[+]upstream ok\n"}, {"/api/v1/namespaces?resourceVersion=0", `"kind":"NamespaceList"`}}
	pages, err := filepath.Glob("../../../docs/*.md")
	expect.NoError(t, err)
	var lines []string
	for _, page := range append(pages, "../../../README.md") {
		text, err := os.ReadFile(page)
		expect.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^ *(?:\$ )?(curl .*)$`).FindAllStringSubmatch(strings.ReplaceAll(string(text), "\\\n", ""), -1) {
			lines = append(lines, m[1])
		}
	}
	w := newWalk(t)
	own, err := os.ReadFile(cp.KubeconfigPath(controlplane.Feed))
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, "listproxy.kubeconfig"), own, 0o600)
	}
	expect.NoError(t, err)
	w.env = append(w.env, "TOKEN="+cp.Token(controlplane.Admin))
	connect := controlplane.FreePort(t)
	w.start(t, fmt.Sprintf("bin/listproxy --kubeconfig listproxy.kubeconfig --bind-address 127.0.0.1 --connect-port %d", connect))
	defer w.stop(t)
	here := strings.NewReplacer("curl ", "curl -fsS ", "127.0.0.1:8444", fmt.Sprintf("127.0.0.1:%d", connect),
		"127.0.0.1:8081", fmt.Sprintf("127.0.0.1:%d", w.admin), "https://your-api-server:6443", cp.URL())
	for _, line := range lines {
		out := w.run(t, "for i in $(seq 100); do "+here.Replace(line)+" && exit; sleep .1; done; exit 1") // it may not be ready yet
		i := slices.IndexFunc(shows, func(s [2]string) bool { return strings.Contains(line, s[0]) })
		if i < 0 || !strings.Contains(out, shows[i][1]) {
			t.Errorf("%s\ndoes not show what this test knows of:\n%s", line, out)
		}
	}
	if len(lines) < len(shows) {
		t.Errorf("the pages tell %q", lines)
	}
}
