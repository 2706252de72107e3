package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

const (
	// completeEnv makes this test's own program listproxy.
	completeEnv = "LISTPROXY_TEST_AS_LISTPROXY"

	// bashAsks completes its arguments as bash does when somebody presses Tab. The function that
	// it makes is of the package bash-completion, which need not be there.
	bashAsks = `
_get_comp_words_by_ref() {
	cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
}
__ltrim_colon_completions() { :; }
compopt() { :; }
source <(listproxy completion bash) || exit 1
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
__start_listproxy
printf '%s\n' "${COMPREPLY[@]}"`
)

func TestMain(m *testing.M) {
	if os.Getenv(completeEnv) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// asListproxy makes a command find this test's own program as listproxy.
func asListproxy(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	program, err := os.Executable()
	expect.NoError(t, err)
	dir := t.TempDir()
	expect.NoError(t, os.Symlink(program, filepath.Join(dir, "listproxy")))
	cmd.Env = append(os.Environ(), completeEnv+"=yes", "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// TestCompletionInBash: what a real bash completes.
func TestCompletionInBash(t *testing.T) {
	for _, tt := range []struct {
		line string
		want []string
	}{
		{"listproxy st", []string{"status"}},
		{"listproxy po", []string{"policy"}},
		{"listproxy completion ba", []string{"bash"}},
		{"listproxy policy ", []string{"check"}},
		{"listproxy --admin-b", []string{"--admin-bind-address"}},
		{"listproxy --log-level ", []string{"access", "debug", "error", "info", "warn"}},
		{"listproxy --log-level a", []string{"access"}},
		{"listproxy --tls-min-version ", tlsVersions()},
		{"listproxy --log-format ", []string{"json", "text"}},
		{"listproxy status --addr", []string{"--address"}},
		{"listproxy status --address ", []string{""}},
		{"listproxy status ", []string{""}},
		{"listproxy kubeconfig --via ", []string{"proxy-url", "server"}},
	} {
		cmd := exec.CommandContext(t.Context(), "bash", append([]string{"--norc", "-c", bashAsks, "bash"}, strings.Split(tt.line, " ")...)...) // #nosec G204 -- fixed words
		asListproxy(t, cmd)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", tt.line, err, out)
		}
		var got []string
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			got = append(got, word)
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q becomes %q, want %q", tt.line, got, tt.want)
		}
	}
}

// TestCompletionScripts: there is one for each shell, and it is not empty.
func TestCompletionScripts(t *testing.T) {
	for shell, says := range map[string]string{"bash": "__start_listproxy", "zsh": "#compdef listproxy", "fish": "complete -c listproxy"} {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", "listproxy completion "+shell) // #nosec G204 -- a fixed word
		asListproxy(t, cmd)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v\n%.200s", shell, err, out)
		}
	}
}
