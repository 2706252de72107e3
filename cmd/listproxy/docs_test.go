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

// page is a documentation page of this repository.
type page struct {
	path, text string
	// isRecord marks a page about the past: the changelog, or results. It may name what no longer exists.
	isRecord bool
}

// readPages returns all documentation pages.
func readPages(t *testing.T) (pages []page) {
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
			isRecord := filepath.Base(path) == "CHANGELOG.md" || strings.Contains(path, "results")
			pages = append(pages, page{path: path, text: string(text), isRecord: isRecord})
		}
	}
	return pages
}

// commands returns cmd and all its subcommands.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

// TestMentionedFlags: every flag that a page mentions is a flag of some command.
func TestMentionedFlags(t *testing.T) {
	// Flags of cobra, kubectl, curl, docker, cosign, Helm, kube-apiserver and bin/bench.
	const foreign = "help version as before build-arg certificate etcd-servers-overrides force-conflicts " +
		"requestheader-client-ca-file requestheader-username-headers take-ownership tracing-config-file watch watch-cache-sizes"
	known := map[string]bool{}
	for name := range strings.FieldsSeq(foreign) {
		known[name] = true
	}
	for _, cmd := range commands(newCommand()) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	}
	mention := regexp.MustCompile("`--([a-z][a-z-]*[a-z])")
	for _, p := range readPages(t) {
		for _, match := range mention.FindAllStringSubmatch(p.text, -1) {
			if name := match[1]; !known[name] && !p.isRecord {
				t.Errorf("%s mentions --%s, which is not a flag of any command", p.path, name)
			}
		}
	}
}

// TestMentionedTests: every test that a page names exists. Only the changelog may name tests that are gone.
func TestMentionedTests(t *testing.T) {
	known := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	expect.NoError(t, filepath.WalkDir("../..", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		source, err := os.ReadFile(file) // #nosec G304 G122 -- of this repository
		for _, match := range function.FindAllSubmatch(source, -1) {
			known[string(match[1])] = true
		}
		return err
	}))
	mention := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`")
	mentions := 0
	for _, p := range readPages(t) {
		for _, match := range mention.FindAllStringSubmatch(p.text, -1) {
			mentions++
			if name := match[1]; !known[name] && filepath.Base(p.path) != "CHANGELOG.md" {
				t.Errorf("%s names the test %s, which does not exist", p.path, name)
			}
		}
	}
	if mentions < 10 {
		t.Errorf("the pages name %d tests, want at least 10: is the pattern wrong?", mentions)
	}
}

// TestLinksInPages: every link to a file of this repository leads to a file and, if it names one, to a heading.
func TestLinksInPages(t *testing.T) {
	codeBlock := regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	pages := readPages(t)
	anchors := map[string]bool{} // as path#heading
	for i, p := range pages {
		pages[i].text = codeBlock.ReplaceAllString(p.text, "")
		for _, anchor := range anchorsOf(pages[i].text) {
			anchors[p.path+"#"+anchor] = true
		}
	}
	link, brokenLink := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile(`\]\n *\([^)\s]+\)`)
	for _, p := range pages {
		if found := brokenLink.FindString(p.text); found != "" {
			t.Errorf("%s has %q, which is not a link: its parts are on two lines", p.path, found)
		}
		for _, match := range link.FindAllStringSubmatch(p.text, -1) {
			file, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := p.path
			if file != "" {
				target = filepath.Join(filepath.Dir(p.path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", p.path, match[1])
			} else if anchor != "" && filepath.Ext(target) == ".md" && !anchors[target+"#"+anchor] {
				t.Errorf("%s links to %s, and there is no such heading", p.path, match[1])
			}
		}
	}
}

// anchorsOf returns the anchors of a page: those of its headings, as GitHub makes them, and <a name>.
func anchorsOf(text string) (anchors []string) {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$|<a name="?(\S+?)"?></a>`)
	punctuation := regexp.MustCompile(`[^\pL\pN _-]`)
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		words := strings.ToLower(punctuation.ReplaceAllString(match[1], ""))
		anchors = append(anchors, match[2], strings.ReplaceAll(words, " ", "-"))
	}
	return anchors
}

// TestDecisions: each page in docs/decisions has its four parts, and at most 250 words.
func TestDecisions(t *testing.T) {
	const maxWords, minPages = 250, 10
	count := 0
	for _, p := range readPages(t) {
		if filepath.Base(filepath.Dir(p.path)) != "decisions" {
			continue
		}
		count++
		expect.Says(t, p.text, "**Context.**", "**Decision.**", "**Measured.**", "**What would change our mind.**")
		if words := len(strings.Fields(p.text)); words > maxWords {
			t.Errorf("%s has %d words, want at most %d", p.path, words, maxWords)
		}
	}
	if count < minPages {
		t.Errorf("there are %d decisions, want at least %d: is the pattern wrong?", count, minPages)
	}
}

// TestCommandsInPages: listproxy accepts each command line of its own that a page shows, and each make has a target.
// (TestReadmeWalk in test/e2e/operators runs the command lines of the README's trial.)
func TestCommandsInPages(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	expect.NoError(t, err)
	commandLine := regexp.MustCompile(
		`(?m)^ *(?:\$ )?\(?(?:umask 077; *)?(?:[^|\n]*\| *)?(?:bin/)?(listproxy|make) +([a-z-][^\n]*)$`)
	value := regexp.MustCompile(`\{\{.*?\}\}`) // of a template
	found := map[string]int{}                  // by program
	for _, p := range readPages(t) {
		code := strings.ReplaceAll(codeOf(p), "\\\n", " ")
		for _, match := range commandLine.FindAllStringSubmatch(code, -1) {
			program, line := match[1], match[2]
			for _, end := range []string{" #", " > ", " | "} {
				line, _, _ = strings.Cut(line, end)
			}
			line = strings.TrimRight(line, ")& ")
			words := splitWords(value.ReplaceAllString(line, "x"))
			found[program]++
			switch {
			case program == "make":
				if !strings.Contains(string(makefile), "\n"+words[0]+":") {
					t.Errorf("%s has make %s, and there is no such target", p.path, words[0])
				}
			case words[0] == "is": // a sentence, not a command line
			default:
				if err := checkCommandLine(words); err != nil {
					t.Errorf("%s has listproxy %s, which is refused: %v", p.path, line, err)
				}
			}
		}
	}
	if found["listproxy"] < 10 || found["make"] < 10 {
		t.Errorf("the pages have the command lines %v, want at least 10 each: is the pattern wrong?", found)
	}
}

// codeOf returns the code blocks of a Markdown page, and the whole text of any other page.
func codeOf(p page) string {
	if filepath.Ext(p.path) != ".md" {
		return p.text
	}
	codeBlock := regexp.MustCompile("(?s)\n```[a-z]*\n(.*?)\n```")
	var code strings.Builder
	for _, match := range codeBlock.FindAllStringSubmatch(p.text, -1) {
		code.WriteString(match[1] + "\n")
	}
	return code.String()
}

// checkCommandLine returns an error if listproxy refuses the arguments, without running the command.
func checkCommandLine(args []string) error {
	cmd, rest, err := newCommand().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// splitWords splits a command line into words, as a shell does.
func splitWords(line string) []string {
	words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], "'")
	}
	return words
}

// TestDocumentedOutput: the commands in docs/policy.md print what the page shows.
func TestDocumentedOutput(t *testing.T) {
	t.Chdir("../..")
	text, err := os.ReadFile("docs/policy.md")
	expect.NoError(t, err)
	console := regexp.MustCompile("(?ms)^```console\n\\$ listproxy ([^\n]*)\n(.*?)^```$")
	blocks := console.FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("docs/policy.md has no command: is the pattern wrong?")
	}
	for _, block := range blocks {
		commandLine, want := block[1], block[2]
		got, err := execute(t, splitWords(commandLine)...)
		expect.NoError(t, err)
		expect.Same(t, want, got)
	}
}
