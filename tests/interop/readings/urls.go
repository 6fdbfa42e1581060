// Where Go would connect for each URL: a JSON string a line in, a JSON list of [parser, host] a line out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
)

func main() {
	var dialed string
	refuse := errors.New("only looked at")
	dial := func(_ context.Context, _, address string) (net.Conn, error) {
		dialed = address
		return nil, refuse
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		var text string
		if json.Unmarshal(in.Bytes(), &text) != nil {
			os.Exit(1)
		}
		found := [][2]string{}
		if u, err := url.Parse(text); err == nil && u.Hostname() != "" {
			found = append(found, [2]string{"url.Parse", u.Hostname()})
		}
		dialed = ""
		if r, err := client.Get(text); err == nil {
			r.Body.Close()
		}
		if host, _, err := net.SplitHostPort(dialed); err == nil {
			if host == "" {
				host = "localhost"
			}
			found = append(found, [2]string{"net/http", host})
		}
		line, _ := json.Marshal(found)
		out.Write(append(line, '\n'))
	}
}
