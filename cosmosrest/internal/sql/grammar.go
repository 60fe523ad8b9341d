package sql

import (
	"sync"

	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// The grammar. An expression is parsed flat, operand operator operand …, and made a tree by precedence when it is compiled
// (see precedence.go): a rule per level of precedence would cost a dozen calls for every operand.

type statement struct {
	Query     *selectStmt `parser:"@@"`
	Condition *condition  `parser:"| @@"`
}

// condition is the predicate of a patch: a query without its SELECT.
type condition struct {
	From  *sourceRef `parser:"'FROM' @@"`
	Where *expr      `parser:"('WHERE' @@)?"`
}

type selectStmt struct {
	Pos      lexer.Position
	Distinct bool         `parser:"'SELECT' @'DISTINCT'?"`
	Top      *operand     `parser:"('TOP' @@)?"`
	List     selection    `parser:"@@"`
	From     []*sourceRef `parser:"('FROM' @@ ('JOIN' @@)*)?"`
	Tail     tail         `parser:"@@"`
}

type selection struct {
	Pos    lexer.Position
	Star   bool    `parser:"@'*'"`
	Value  *expr   `parser:"| 'VALUE' @@"`
	Items  []*item `parser:"| @@ (',' @@)*"`
	EndPos lexer.Position
}

// tail is everything from WHERE on.
type tail struct {
	Pos    lexer.Position
	Where  *expr       `parser:"('WHERE' @@)?"`
	Group  []*expr     `parser:"('GROUP' 'BY' @@ (',' @@)*)?"`
	Order  []*orderRef `parser:"('ORDER' 'BY' @@ (',' @@)*)?"`
	Offset *operand    `parser:"('OFFSET' @@"`
	Limit  *operand    `parser:"'LIMIT' @@)?"`
}

type item struct {
	Expr  *expr  `parser:"@@"`
	Alias string `parser:"('AS'? @Ident)?"`
}

type sourceRef struct {
	Pos   lexer.Position
	Sub   *selectStmt `parser:"( '(' @@ ')'"`
	Name  string      `parser:"| @Ident"`
	Path  []*suffix   `parser:"@@* )"`
	In    *sourceRef  `parser:"( 'IN' @@"`
	Alias string      `parser:"| 'AS'? @Ident )?"`
}

type orderRef struct {
	Expr *expr `parser:"@@"`
	Desc bool  `parser:"('ASC' | @'DESC')?"`
}

// operand is a count: a number or a parameter.
type operand struct {
	Pos   lexer.Position
	Value string `parser:"@Literal"`
}

type expr struct {
	Pos    lexer.Position
	First  *unary  `parser:"@@"`
	Rest   []*link `parser:"@@*"`
	EndPos lexer.Position
}

type link struct {
	Pos   lexer.Position
	Not   bool   `parser:"@'NOT'?"`
	Op    string `parser:"@Op"`
	Right *unary `parser:"@@"`
}

type unary struct {
	Signs   []string `parser:"@('NOT' | '-' | '+' | '~')*"`
	Primary *primary `parser:"@@"`
}

type primary struct {
	Pos     lexer.Position
	Literal string     `parser:"( @Literal"`
	Name    string     `parser:"| @Ident | @Call | @'UDF'"`
	Group   *args      `parser:"| @@"`
	Array   *arrayLit  `parser:"| @@"`
	Object  *objectLit `parser:"| @@ )"`
	Suffix  []*suffix  `parser:"@@*"`
}

type args struct {
	Sub   *selectStmt `parser:"'(' ( @@"`
	Plain *literals   `parser:"| @@"`
	Exprs []*expr     `parser:"| @@ (',' @@)* )? ')'"`
}

func (a *args) list() []*expr { return a.Plain.or(a.Exprs) }

type arrayLit struct {
	Plain *literals `parser:"'[' (@@"`
	Exprs []*expr   `parser:"| @@ (',' @@)*)? ']'"`
}

func (a *arrayLit) list() []*expr { return a.Plain.or(a.Exprs) }

type objectLit struct {
	Members []*property `parser:"'{' (@@ (',' @@)*)? '}'"`
}

type property struct {
	Key   string `parser:"@(Ident | Literal)"`
	Value *expr  `parser:"':' @@"`
}

type suffix struct {
	Pos   lexer.Position
	Field string `parser:"'.' @Ident"`
	Index *expr  `parser:"| '[' @@ ']'"`
	Call  *args  `parser:"| @@"`
}

var parser = sync.OnceValue(func() *participle.Parser[statement] {
	return participle.MustBuild[statement](participle.Lexer(definition{}))
})
