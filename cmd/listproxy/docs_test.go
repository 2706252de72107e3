package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/test/expect"
)

// page is a text for people.
type page struct {
	path, text string
	isOld      bool // it tells of its time
}

func pages(t *testing.T) (all []page) {
	t.Helper()
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/results/*.md", "docs/decisions/*.md", ".github/*.md", "test/*.md", "docs/rbac.yaml",
		"charts/listproxy/*.md", "charts/listproxy/templates/NOTES.txt",
	} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		expect.NoError(t, err)
		for _, path := range files {
			text, err := os.ReadFile(path) // #nosec G304 -- of this repository
			expect.NoError(t, err)
			all = append(all, page{path, string(text), filepath.Base(path) == "CHANGELOG.md" || strings.Contains(path, "results")})
		}
	}
	return all
}

// commands are cmd and all below it.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, below := range cmd.Commands() {
		all = append(all, commands(below)...)
	}
	return all
}

// TestMentionedFlags: a flag that a page speaks of exists, at one command or another.
func TestMentionedFlags(t *testing.T) {
	// Of cobra, kubectl, curl, docker, cosign, Helm, kube-apiserver and bin/bench.
	known := map[string]bool{}
	for name := range strings.FieldsSeq("help version as before build-arg certificate etcd-servers-overrides force-conflicts requestheader-client-ca-file " +
		"requestheader-username-headers take-ownership tracing-config-file watch watch-cache-sizes") {
		known[name] = true
	}
	for _, cmd := range commands(newCommand()) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	}
	mention := regexp.MustCompile("`--([a-z][a-z-]*[a-z])")
	for _, p := range pages(t) {
		for _, m := range mention.FindAllStringSubmatch(p.text, -1) {
			if !known[m[1]] && !p.isOld {
				t.Errorf("%s speaks of --%s, which is no flag", p.path, m[1])
			}
		}
	}
}

// TestNamedTests: the tests that pages name exist. The changelog tells of those of its time.
func TestNamedTests(t *testing.T) {
	known, named := map[string]bool{}, 0
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	expect.NoError(t, filepath.WalkDir("../..", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		source, err := os.ReadFile(file) // #nosec G304 G122 -- of this repository
		for _, m := range function.FindAllSubmatch(source, -1) {
			known[string(m[1])] = true
		}
		return err
	}))
	for _, p := range pages(t) {
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`").FindAllStringSubmatch(p.text, -1) {
			named++
			if !known[m[1]] && filepath.Base(p.path) != "CHANGELOG.md" {
				t.Errorf("%s names %s, which is no test", p.path, m[1])
			}
		}
	}
	if named < 10 {
		t.Errorf("pages name only %d tests", named)
	}
}

// TestLinksInPages: what a page links to in this repository is there, and so is the heading.
func TestLinksInPages(t *testing.T) {
	link, twoLines := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile(`\]\n *\([^)\s]+\)`)
	heading, other := regexp.MustCompile(`(?m)^#+ (.*)$|<a name="?(\S+?)"?></a>`), regexp.MustCompile(`[^\pL\pN _-]`)
	block := regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	all, anchors := pages(t), map[string]bool{} // as path#heading
	for i, p := range all {
		all[i].text = block.ReplaceAllString(p.text, "")
		for _, m := range heading.FindAllStringSubmatch(all[i].text, -1) {
			anchors[p.path+"#"+m[2]] = true
			anchors[p.path+"#"+strings.ReplaceAll(strings.ToLower(other.ReplaceAllString(m[1], "")), " ", "-")] = true
		}
	}
	for _, p := range all {
		if found := twoLines.FindString(p.text); found != "" {
			t.Errorf("%s has a link on two lines, which is none: %q", p.path, found)
		}
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := p.path
			if file != "" {
				target = filepath.Join(filepath.Dir(p.path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", p.path, m[1])
			} else if anchor != "" && filepath.Ext(target) == ".md" && !anchors[target+"#"+anchor] {
				t.Errorf("%s links to %s, and there is no such heading", p.path, m[1])
			}
		}
	}
}

// TestDecisions: each page in docs/decisions is at most 250 words long, and has its four parts.
func TestDecisions(t *testing.T) {
	count := 0
	for _, p := range pages(t) {
		if filepath.Base(filepath.Dir(p.path)) != "decisions" {
			continue
		}
		count++
		expect.Says(t, p.text, "**Context.**", "**Decision.**", "**Measured.**", "**What would change our mind.**")
		if words := len(strings.Fields(p.text)); words > 250 {
			t.Errorf("%s has %d words", p.path, words)
		}
	}
	if count < 10 {
		t.Errorf("there are only %d decisions", count)
	}
}

// TestCommandsInPages: each command line of listproxy in the pages is one that listproxy takes, and
// each make has a target. (TestReadmeWalk in test/e2e/operators runs those of the README's trial.)
func TestCommandsInPages(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	expect.NoError(t, err)
	command := regexp.MustCompile(`(?m)^ *(?:\$ )?\(?(?:umask 077; *)?(?:[^|\n]*\| *)?(?:bin/)?(listproxy|make) +([a-z-][^\n]*)$`)
	blocks, value := regexp.MustCompile("(?s)\n```[a-z]*\n(.*?)\n```"), regexp.MustCompile(`\{\{.*?\}\}`)
	found := map[string]int{}
	for _, p := range pages(t) {
		code := p.text
		if filepath.Ext(p.path) == ".md" {
			code = ""
			for _, block := range blocks.FindAllStringSubmatch(p.text, -1) {
				code += block[1] + "\n"
			}
		}
		for _, m := range command.FindAllStringSubmatch(strings.ReplaceAll(code, "\\\n", " "), -1) {
			line := m[2]
			for _, after := range []string{" #", " > ", " | "} {
				line, _, _ = strings.Cut(line, after)
			}
			line = strings.TrimRight(line, ")& ")
			words := wordsOf(value.ReplaceAllString(line, "x"))
			found[m[1]]++
			if m[1] == "make" {
				if !strings.Contains(string(makefile), "\n"+words[0]+":") {
					t.Errorf("%s: make %s: there is no such target", p.path, words[0])
				}
				continue
			}
			if words[0] == "is" {
				continue // a sentence, not a command
			}
			cmd, args, err := newCommand().Find(words)
			if err == nil {
				err = cmd.ParseFlags(args)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: listproxy %s: %v", p.path, line, err)
			}
		}
	}
	if found["listproxy"] < 10 || found["make"] < 10 {
		t.Errorf("hardly any commands were found: %v", found)
	}
}

// wordsOf are those of a command line, as a shell would read it.
func wordsOf(line string) []string {
	words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], "'")
	}
	return words
}

// TestDocumentedCommands runs what docs/policy.md shows, and compares.
func TestDocumentedCommands(t *testing.T) {
	t.Chdir("../..")
	text, err := os.ReadFile("docs/policy.md")
	expect.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```console\n\\$ listproxy ([^\n]*)\n(.*?)^```$").FindAllSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Fatal("no commands")
	}
	for _, block := range blocks {
		got, err := execute(t, wordsOf(string(block[1]))...)
		expect.NoError(t, err)
		expect.Same(t, string(block[2]), got)
	}
}
