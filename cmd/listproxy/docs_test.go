package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/test/expect"
)

// TestMentionedFlags: a flag that a page speaks of exists, at one command or another.
func TestMentionedFlags(t *testing.T) {
	known := map[string]bool{"help": true, "version": true}
	root := newCommand()
	for _, cmd := range append(root.Commands(), root) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		for _, sub := range cmd.Commands() {
			sub.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		}
	}
	// Of kubectl, curl, docker, cosign, Helm, kube-apiserver and bin/bench.
	maps.Copy(known, map[string]bool{
		"as": true, "before": true, "build-arg": true, "certificate": true, "force-conflicts": true, "watch-cache-sizes": true,
		"requestheader-client-ca-file": true, "requestheader-username-headers": true, "take-ownership": true, "tracing-config-file": true, "watch": true,
	})
	mention := regexp.MustCompile("`--([a-z][a-z-]*[a-z])")
	for _, file := range append(pages(t), "../../docs/rbac.yaml") {
		if filepath.Base(file) == "CHANGELOG.md" || strings.Contains(file, "results") { // they tell of their time
			continue
		}
		text, err := os.ReadFile(file)
		expect.NoError(t, err)
		for _, m := range mention.FindAllStringSubmatch(string(text), -1) {
			if !known[m[1]] {
				t.Errorf("%s speaks of --%s, which is no flag", file, m[1])
			}
		}
	}
}

// pages are all texts for people.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/results/*.md", "charts/listproxy/*.md"} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		expect.NoError(t, err)
		found = append(found, files...)
	}
	return found
}

// TestNamedTests: the tests that pages name exist. The changelog tells of those of its time.
func TestNamedTests(t *testing.T) {
	known := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir("../..", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		source, err := os.ReadFile(file) // #nosec G304 G122 -- of this repository
		for _, m := range function.FindAllSubmatch(source, -1) {
			known[string(m[1])] = true
		}
		return err
	})
	expect.NoError(t, err)
	named := map[string]int{}
	for _, page := range pages(t) {
		if filepath.Base(page) == "CHANGELOG.md" {
			continue
		}
		text, err := os.ReadFile(page)
		expect.NoError(t, err)
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`").FindAllSubmatch(text, -1) {
			named[filepath.Base(page)]++
			if !known[string(m[1])] {
				t.Errorf("%s names %s, which is no test", page, m[1])
			}
		}
	}
	if named["security.md"] == 0 {
		t.Error("docs/security.md names no tests")
	}
}

// TestLinksInPages: what a page links to in this repository is there, and so is the heading.
func TestLinksInPages(t *testing.T) {
	link, heading := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile(`(?m)^#+ (.*)$|<a name=(\S+)></a>`)
	block, other := regexp.MustCompile("(?ms)^ *```.*?^ *```$"), regexp.MustCompile(`[^\pL\pN _-]`)
	read := func(file string) string {
		text, err := os.ReadFile(file) // #nosec G304 -- of this repository
		if err != nil {
			t.Error(err)
		}
		return block.ReplaceAllString(string(text), "")
	}
	known := map[string]map[string]bool{}
	anchors := func(file string) map[string]bool {
		if known[file] != nil {
			return known[file]
		}
		found := map[string]bool{}
		known[file] = found
		for _, m := range heading.FindAllStringSubmatch(read(file), -1) {
			found[strings.Trim(m[2], `"`)] = true
			found[strings.ReplaceAll(strings.ToLower(other.ReplaceAllString(m[1], "")), " ", "-")] = true
		}
		return found
	}
	broken := regexp.MustCompile(`\]\n *\([^)\s]+\)`)
	for _, page := range pages(t) {
		if found := broken.FindString(read(page)); found != "" {
			t.Errorf("%s has a link on two lines, which is none: %q", page, found)
		}
		for _, m := range link.FindAllStringSubmatch(read(page), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			} else if anchor != "" && filepath.Ext(target) == ".md" && !anchors(target)[anchor] {
				t.Errorf("%s links to %s, and there is no such heading", page, m[1])
			}
		}
	}
}

// TestCommandsInPages: each command line of listproxy in the pages is one that listproxy takes, and
// each make has a target. (TestReadmeWalk in test/e2e/operators runs those of the README's trial.)
func TestCommandsInPages(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	expect.NoError(t, err)
	command := regexp.MustCompile(`(?m)^ *(?:\$ )?\(?(?:umask 077; *)?(?:[^|\n]*\| *)?(?:bin/)?(listproxy|make) +([a-z-][^\n]*)$`)
	blocks := regexp.MustCompile("(?s)\n```[a-z]*\n(.*?)\n```")
	value := regexp.MustCompile(`\{\{.*?\}\}`)
	found := map[string]int{}
	for _, page := range append(pages(t), "../../charts/listproxy/templates/NOTES.txt") {
		text, err := os.ReadFile(page)
		expect.NoError(t, err)
		code := string(text)
		if filepath.Ext(page) == ".md" {
			code = ""
			for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
				code += block[1] + "\n"
			}
		}
		for _, m := range command.FindAllStringSubmatch(strings.ReplaceAll(code, "\\\n", " "), -1) {
			line, _, _ := strings.Cut(m[2], " #")
			line, _, _ = strings.Cut(line, " > ")
			line, _, _ = strings.Cut(line, " | ")
			line = strings.TrimRight(line, ")& ")
			words := wordsOf(value.ReplaceAllString(line, "x"))
			if strings.HasPrefix(m[1], "make") {
				if !strings.Contains(string(makefile), "\n"+words[0]+":") {
					t.Errorf("%s: make %s: there is no such target", page, words[0])
				}
				found["make"]++
				continue
			}
			if page == "../../charts/listproxy/templates/NOTES.txt" && words[0] == "is" {
				continue // its first sentence
			}
			cmd, args, err := newCommand().Find(words)
			if err == nil {
				err = cmd.ParseFlags(args)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: listproxy %s: %v", page, line, err)
			}
			found["listproxy"]++
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
		line, want := string(block[1]), string(block[2])
		t.Run(line, func(t *testing.T) {
			_, got, err := execute(t, wordsOf(line)...)
			expect.NoError(t, err)
			expect.Same(t, want, got)
		})
	}
}
