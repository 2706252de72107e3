package policyfile

import (
	"testing"

	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

func TestPolicyCheckOfAWrongFile(t *testing.T) {
	path := clitest.PolicyFile(t, "defaults:\n  cache: sometimes\nresources:\n- {group: '', resource: pods, historyWindow: 1}\n")
	_, out, err := clitest.Execute(t, NewCheckCommand(), path)
	if err == nil {
		t.Fatalf("accepted: %s", out)
	}
	if out != "" {
		t.Errorf("an error, and output: %s", out)
	}
	expect.Says(t, err.Error(), path+": defaults.cache", path+": resources[0].historyWindow")
	if _, _, err := clitest.Execute(t, NewCheckCommand(), path+".not"); err == nil {
		t.Error("a file that is not there is accepted")
	}
}
